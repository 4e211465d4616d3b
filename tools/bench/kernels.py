"""``python -m tools.bench.kernels --against TREE``: the CPU time of each kernel, here and in another tree of krepair.

Both trees run the same verbs on the same logs, in turn, each in processes of its own; the least of several runs says
what the work costs. It is the CPU time of the thread within each kernel: other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.builders import LogDir
from tests.compaction import histories
from tests.compaction.old_formats import partition_of
from tools.bench.data import make

ROOT: Final = Path(__file__).resolve().parents[2]
SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": "100000000"}
MIXED: Final = 60
"""Small partitions of all formats and codecs, beside the large logs."""

_CHILD: Final = """
import json, os, sys, time
from krepair.cli.main import app
from krepair.kernels import jit

spent = {}
call = jit.Kernel.__call__

def timed(self, *arguments):
    before = time.thread_time_ns()
    try:
        return call(self, *arguments)
    finally:
        name = f"{self.py_func.__module__.rpartition('.')[2]}.{self.py_func.__name__}"
        spent[name] = spent.get(name, 0) + time.thread_time_ns() - before

jit.Kernel.__call__ = timed
out = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
for words in json.loads(sys.argv[1]) * 2:
    if words == ["again"]:
        loaded = dict(spent)
        spent.clear()
        continue
    try:
        app(words)
    except SystemExit as end:
        assert end.code in {0, 2, 3, 4}, (words, end.code)
os.write(out, json.dumps(spent).encode())
"""


def directories(room: Path, megabytes: int) -> list[Path]:
    """Log directories with the kinds of logs that kernels are made for."""
    made = []
    for kind in ("half", "records", "lz4", "commits", "states"):
        made.append(make(room / kind, kind, megabytes * 1_000_000, segment_bytes=20_000_000).root)
        (made[-1] / ".kafka_cleanshutdown").touch()
    mixed = room / "mixed"
    for seed in range(MIXED):
        history = histories.of_seed(seed, codecs=True)
        folder = history.fill(LogDir(room / f"v2-{seed}").partition("t", index_interval_bytes=200)).write()
        mixed.mkdir(exist_ok=True)
        shutil.move(folder, mixed / f"v2x{seed}-0")
        old, _ = partition_of(seed, room / f"old-{seed}")
        shutil.move(old, mixed / f"old{seed}-0")
    return [*made, mixed]


def runs(log_dir: Path, room: Path) -> list[list[str]]:
    """What is done with one log directory, and what takes it back."""
    inline = ["--engine", "inline", "-q"]
    topics = {path.name.rpartition("-")[0] for path in log_dir.iterdir() if path.is_dir()}
    config, plan = str(room / f"{log_dir.name}.json"), str(room / f"{log_dir.name}.plan")
    Path(config).write_text(json.dumps(dict.fromkeys(sorted(topics), SETTINGS)))
    horizon = ["--delete-horizon", "4000000000000", "--assume-high-watermark", "log-end"]
    compact = ["--fix", "compact", "--topic-config", config, "--out", plan, *horizon]
    done = [
        ["check", str(log_dir), "--deep", *inline],
        ["plan", str(log_dir), "--fix", "markers,index,snapshots", "--out", f"{plan}-markers", *inline],
        ["plan", str(log_dir), *compact, *inline],
        ["apply", plan, *inline],
        ["verify", plan, "--originals", *inline],
        ["undo", plan, "-q"],
    ]
    done += [["dump", str(path), "--json", "--decode", "none"] for path in sorted(log_dir.glob("*-0"))[:4]]
    return [*done, ["groups", str(log_dir), "-q"]]


def measured(tree: Path, todo: list[list[str]]) -> dict[str, int]:
    """Nanoseconds in each kernel of a tree, of the second of two rounds: the first one loads."""
    ended = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps(todo)],
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | {"PYTHONPATH": str(tree)},
        cwd=tree,
    )
    spent: dict[str, int] = json.loads(ended.stdout)
    return spent


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.kernels", description=__doc__)
    parser.add_argument(
        "--against", type=Path, required=True, help="another tree of krepair, such as a worktree"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=40, help="of each large log")
    parser.add_argument(
        "--least", type=float, default=2.0, help="milliseconds below which a kernel is left out"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="krepair-kernels-") as folder:
        room = Path(folder)
        todo = [["again"]] + [one for each in directories(room, chosen.megabytes) for one in runs(each, room)]
        least: dict[tuple[str, bool], int] = {}
        for _ in range(chosen.runs):
            for here, tree in ((False, chosen.against), (True, ROOT)):
                for name, spent in measured(tree, todo).items():
                    least[name, here] = min(spent, least.get((name, here), spent))
    print(f"{'kernel':36} {'before ms':>10} {'now ms':>10} {'speed now':>10}")
    for name in sorted({name for name, _ in least}, key=lambda name: -least.get((name, False), 0)):
        before, now = least.get((name, False), 0) / 1e6, least.get((name, True), 0) / 1e6
        if before >= chosen.least and now > 0:
            print(f"{name:36} {before:10.2f} {now:10.2f} {before / now:10.3f}")


if __name__ == "__main__":
    main()
