"""What to type next, as a value: which verb, of what, with which options. Only here a command is spelled and quoted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from krepair.options import OPTIONS

LOG_DIR: Final = "LOGDIR"
PLAN: Final = "PLAN"
"""What stands for a path that only the command line knows."""

_TAKES_A_VALUE: Final = frozenset(option.names[0] for option in OPTIONS.values() if option.metavar)
_ONE_MORE: Final = frozenset({"--accept-data-loss"})
"""Options that may be there with another value."""
_NAMES: Final = ("--topic", "--partition")


@dataclass(frozen=True, slots=True)
class Next:
    """A command of krepair.

    Attributes:
        verb: as typed.
        operands: paths, or what stands for them.
        options: each with its value, if it takes one, as ``Options.words`` gives them.
        out: where a plan goes; empty where the verb makes none.
        when: when, or as whom, it is typed; may be empty.
    """

    verb: str
    operands: tuple[str, ...] = ()
    options: tuple[tuple[str, ...], ...] = ()
    out: str = ""
    when: str = ""

    @classmethod
    def of(cls, verb: str, *words: str, out: str = "", when: str = "") -> Next:
        """A command by its words: first the operands, then the options."""
        options = tuple(_options(words))
        operands = words[: len(words) - sum(map(len, options))]
        return cls(verb, operands, options, out, when)

    @classmethod
    def read(cls, text: str) -> Next | None:
        """A command from a plan or an error, where it stands as text; None where it is none that krepair spells."""
        command, _, when = text.partition(_BEFORE_WHEN)
        try:
            krepair, verb, *words = shlex.split(command)
        except ValueError:
            return None
        out = words.pop() if words[-2:-1] == ["--out"] else ""
        found = cls.of(verb, *(words[:-1] if out else words), out=out, when=when)
        return found if krepair == "krepair" and str(found) == text else None

    def __str__(self) -> str:
        words = ("krepair", self.verb, *self.operands, *(word for one in self.options for word in one))
        typed = shlex.join((*words, "--out", self.out) if self.out else words)
        return f"{typed}{_BEFORE_WHEN}{self.when}" if self.when else typed

    def has(self, *option: str) -> bool:
        """Whether it has an option, with this value where one is named."""
        return any(one[: len(option)] == option for one in self.options)

    def more(self, words: Sequence[str]) -> Next:
        """With the options that it does not have yet.

        What names partitions belongs together: with one name more, the command would be about more partitions.

        Args:
            words: of a command line, options with their values.
        """
        named = any(map(self.has, _NAMES))
        missing = (
            one
            for one in _options(words)
            if not (
                self.has(*one) if one[0] in _ONE_MORE else self.has(one[0]) or (named and one[0] in _NAMES)
            )
        )
        return replace(self, options=(*self.options, *missing))

    def filled(self, *, plan: str = "", log_dir: str = "") -> Next:
        """With the paths that are known. A new plan goes to a new file: the old one may still be needed for undo."""
        paths = {PLAN: plan, LOG_DIR: log_dir}
        return replace(self, operands=tuple(_operand(paths.get(one) or one) for one in self.operands))


_BEFORE_WHEN: Final = "   # "


def _options(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            yield (word, next(rest, "")) if word in _TAKES_A_VALUE else (word,)


def _operand(path: str) -> str:
    """A path that is not taken for an option."""
    return f"./{path}" if path.startswith("-") else path


def by_id(verb: str, log_dir: str, plan_id: str) -> Next:
    """A verb of a plan, without the plan file."""
    return Next.of(verb, log_dir, "--plan-id", plan_id)


def again(command: Next | str, when: str) -> str:
    """The same command, with when or as whom it is typed; see ``KrepairError.again``."""
    return f"{command}{_BEFORE_WHEN}{when}" if when else str(command)


def with_options(command: str, words: Sequence[str]) -> str:
    """A command that stands as text with the options that it does not have yet; one of others as it is."""
    known = Next.read(command)
    return command if known is None else str(known.more(words))


def of_log_dir(command: str, log_dir: str) -> str:
    """A command that stands as text, with the log directory that it is about."""
    known = Next.read(command)
    return command if known is None else str(known.filled(log_dir=log_dir))


def accepts_loss(command: str) -> bool:
    """Whether a command that stands as text accepts that data is lost."""
    known = Next.read(command)
    return known is not None and known.has("--accept-data-loss")
