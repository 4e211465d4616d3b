"""Tasks sync each new file once: for a small file, the fsync costs more than everything else."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from krepair.durable import real_disk
from krepair.engine import engine
from krepair.errors import ExitCode
from tests.hostile import small
from tests.hostile.verbs import run
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]


def test_each_file_that_a_task_makes_is_synced_once(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, plan = small.write(memory_dir / "logs"), memory_dir / "p"
    assert run("plan", str(log_dir), *small.WORDS, "--out", str(plan)).code == ExitCode.FOUND
    synced: list[str] = []
    real_run, real_fsync = engine.InlineEngine.map, os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_fsync(descriptor)

    def run_watched(self: engine.InlineEngine, function: Any, items: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(real_disk.os, "fsync", fsync)
            return list(real_run(self, function, items))

    monkeypatch.setattr(engine.InlineEngine, "map", run_watched)
    assert run("apply", str(plan), "--engine", "inline").code == ExitCode.DONE
    made = Counter(path for path in synced if "/stage/" in path)
    names = {os.path.relpath(path, log_dir).replace(path.split("/")[-3], "ID") for path in made}
    assert names == {
        *(f"m-0/ID/stage/{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")),
        *(f"i-0/ID/stage/{0:020d}{suffix}" for suffix in (".index", ".timeindex")),
    }
    assert set(made.values()) == {1}
