"""``make bench``: runs krepair and comparable programs on the same data, and reports how many times as fast it is.

    python -m tools.bench                       all parts but those of ``ASKED_FOR``
    python -m tools.bench --only compact,many   some; what was kept of the others stays
    python -m tools.bench --page                write the figures into docs/benchmarks.md; nothing is measured

Nothing is asserted: the numbers are for a reader. What each part has found is kept in ``.bench/results``.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.bench import cluster, compact, indexes, many, markers, page, processes, recovery, replicas
from tools.bench.page import Kept
from tools.bench.setting import Setting
from tools.bench.table import Table
from tools.torture.state import commit_here

PARTS: Final[Mapping[str, Callable[[Table, Setting], None]]] = {
    "start": processes.start,
    "markers": markers.markers,
    "half": markers.half,
    "two": markers.two,
    "memory": markers.memory,
    "index": indexes.index,
    "check": indexes.check,
    "many": many.many,
    "recovery": recovery.recovery,
    "cores": recovery.cores,
    "compact": compact.compact,
    "compare": replicas.replicas,
    "dump": processes.dump,
    "groups": processes.groups,
    "transactions": processes.transactions,
    "cluster": cluster.cluster,
}
ASKED_FOR: Final = frozenset({"cores", "cluster"})
"""Parts that start Spark: only where they are asked for."""

RESULTS: Final = "results"
DATA: Final = "data"


def machine() -> str:
    """Describe machine and versions in one line."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    output = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    java = output.partition("\n")[0]
    system = f"{os.cpu_count()} x {cpu}, {platform.system()} {platform.release()}"
    return f"{system}, Python {platform.python_version()}, {java}"


def measured(part: str, setting: Setting, words: str) -> Kept:
    """Run one part, on data of its own; ``words``: of the command line."""
    print(f"{part}:", file=sys.stderr, flush=True)
    table, begun, load = Table(), time.monotonic(), os.getloadavg()[0]
    PARTS[part](table, setting)
    return Kept(
        part=part,
        commit=commit_here(),
        machine=machine(),
        day=time.strftime("%Y-%m-%d", time.gmtime()),
        load=(load, os.getloadavg()[0]),
        minutes=(time.monotonic() - begun) / 60,
        words=words,
        table=table,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", type=Path, default=Path(".bench"), help="where data go (about 5 GB)")
    parser.add_argument("--markers-mb", type=int, default=1000)
    parser.add_argument("--half-mb", type=int, default=400, help="a cleaner's offset map must hold its keys")
    parser.add_argument("--cluster-mb", type=int, default=4000, help="part cluster: bytes of logs in all")
    parser.add_argument("--partitions", type=int, default=2000, help="part many")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of the bytes; 0.1 to try the parts")
    parser.add_argument(
        "--only",
        default=",".join(name for name in PARTS if name not in ASKED_FOR),
        help=f"parts to run, divided by commas: {', '.join(PARTS)}",
    )
    parser.add_argument("--page", action="store_true", help="only write docs/benchmarks.md from what is kept")
    return parser


def main() -> int:
    """Parse the command line, measure, print, keep."""
    chosen = _parser().parse_args()
    folder = chosen.dir.resolve()  # a log directory is named by an absolute path
    results = folder / RESULTS
    if chosen.page:
        page.write(list(page.kept_in(results)))
        return 0
    wanted = chosen.only.split(",")
    if unknown := set(wanted) - PARTS.keys():
        print(f"--only: no part is called {', '.join(sorted(unknown))}", file=sys.stderr)
        return 64
    parser = _parser()
    sizes = {
        name: getattr(chosen, name) for name in ("markers_mb", "half_mb", "cluster_mb", "partitions", "share")
    }
    others = {name: value for name, value in sizes.items() if value != parser.get_default(name)}
    words = " ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in ({"runs": chosen.runs} | others).items()
    )
    for part in (name for name in PARTS if name in wanted):
        data = folder / DATA / part
        shutil.rmtree(data, ignore_errors=True)
        setting = Setting(
            folder=data,
            runs=chosen.runs,
            markers=chosen.markers_mb * 10**6,
            half=chosen.half_mb * 10**6,
            cluster=chosen.cluster_mb * 10**6,
            partitions=chosen.partitions,
            share=chosen.share,
        )
        setting.folder.mkdir(parents=True)
        table = measured(part, setting, words)
        table.keep(results)
        print(table.report(), flush=True)
        shutil.rmtree(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
