"""Starts processes of ``tools.bench.worker``, which load and compile everything before the measurement begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tools.bench.setting import Setting
from tools.bench.spent import Spent, make_cold


class Answer(NamedTuple):
    """Answer of a worker.

    Attributes:
        spent: cost of its work.
        result: result of its work.
        more_kb: peak memory above that of the loaded worker, in kB.
    """

    spent: Spent
    result: Any
    more_kb: int


def work(setting: Setting, *words: object, cold: Path | None = None) -> Answer:
    """Let one worker do something; when it begins, no page of the files below ``cold`` is in the page cache."""
    worker = started(setting, *words)
    if cold:
        make_cold(cold)
    return go(worker)[0]


def started(setting: Setting, *words: object) -> subprocess.Popen[str]:
    """Start a worker, which then waits."""
    argv = [sys.executable, "-m", "tools.bench.worker", str(setting.tiny("markers").folder), *map(str, words)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise RuntimeError(f"{' '.join(argv)} did not start")
    return process


def go(*workers: subprocess.Popen[str]) -> list[Answer]:
    """Start waiting workers together, and return their answers."""
    for each in workers:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    answers = []
    for each in workers:
        assert each.stdin is not None
        assert each.stdout is not None
        answer = json.loads(each.stdout.readline())
        answers.append(Answer(Spent(*answer["spent"]), answer["result"], answer["more_kb"]))
        each.stdin.close()
        if each.wait():
            raise RuntimeError(f"a worker ended with {each.returncode}")
    return answers
