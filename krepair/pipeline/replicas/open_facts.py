"""Opens a facts file, or says what is wrong with it and what to type next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from krepair.errors import RefusedError, UnreadableError
from krepair.formats.facts_file import BAD_CONTENT, FactsDamagedError, FactsReader, FactsVersionError
from krepair.logdir.reading import why
from krepair.pipeline.replicas.facts import opened_facts


@contextmanager
def opened_whole(path: str, again: str) -> Iterator[FactsReader]:
    """Open a file whose digest is that of its bytes.

    Args:
        path: of the file.
        again: the command that makes such a file.

    Raises:
        RefusedError: it is of a version that this krepair does not know.
        UnreadableError: it cannot be read, is cut or was changed.
    """
    opening = opened_facts(path)
    try:
        reader = opening.__enter__()
    except FactsVersionError as error:
        raise RefusedError(
            f"{path}: {error}", next_command=f"{again}, with this version of krepair on its host"
        ) from None
    except FactsDamagedError as error:
        raise UnreadableError(f"{path}: {error}", next_command=f"{again}, once more on its host") from None
    except OSError as error:
        raise UnreadableError(f"{path}: {why(error)}") from None
    try:
        yield reader
    finally:
        opening.__exit__(None, None, None)


@contextmanager
def read_as_input(path: str, again: str) -> Iterator[None]:
    """Say of a file that its content cannot be read, whatever the body stumbles over.

    Args:
        path: of the file.
        again: the command that makes such a file.

    Raises:
        UnreadableError: it is not of the form that was expected.
    """
    try:
        yield
    except BAD_CONTENT as error:
        raise UnreadableError(
            f"{path}: its content cannot be read: {error}", next_command=f"{again}, once more on its host"
        ) from None
