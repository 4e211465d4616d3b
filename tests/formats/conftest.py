"""Real log directories, unpacked once for the tests that only read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixture_dirs import unpack


@pytest.fixture(scope="session")
def real_logs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``real_logs("leader-epochs-2.2.1")``: that log directory, shared, so never to be changed."""
    known: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in known:
            known[name] = unpack(name, tmp_path_factory.mktemp("real"))
        return known[name]

    return of
