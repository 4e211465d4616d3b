"""The corpus, damaged and mended once for all versions of Kafka."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from tests.corpus.bases import Made
from tests.corpus.case import Case
from tests.corpus.harness import made, options


class Mended:
    """Gives copies of what krepair made of each case; the work itself is done once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[str, Made] = {}

    def copy(self, case: Case, to: Path) -> Made:
        """A copy of the mended directory of a case."""
        root = self._root / case.name
        if case.name not in self._made:
            directory = self._made[case.name] = made(case, root)
            apply(make_plan(str(directory.log_dir), options(case)), options(case))
        shutil.copytree(root, to, symlinks=True)
        mended = self._made[case.name]
        return Made(to / mended.log_dir.relative_to(root), mended.topic)


@pytest.fixture(scope="session")
def mended() -> Iterator[Mended]:
    """Shared by the tests of one process."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="krepair-corpus-", dir=memory) as folder:
        yield Mended(Path(folder))
