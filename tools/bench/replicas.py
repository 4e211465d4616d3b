"""Part ``replicas``: ``krepair compare`` of three brokers, against another verb that reads the same bytes, by CPU time.

Equal logs that were never cleaned need only their headers; the peer is ``krepair verify`` of the three directories. If
one replica was cleaned and another was not, the records are read too; the peer is ``krepair plan --fix compact`` of the
three directories. Everything runs in one warm process, inline and in turns; the least value counts.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from krepair.errors import ExitCode
from krepair.fixes.replicas import parse_brokers
from krepair.ops.apply import apply
from krepair.ops.compare import compare
from krepair.ops.facts import facts
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_log_dir
from krepair.options import Options
from krepair.rules.replicas import model as m
from tools.bench.compact import HALF_STAYS, options_for, write_log
from tools.bench.setting import Setting
from tools.bench.spent import make_cold, spent_by
from tools.bench.table import Table, log_bytes_of

SIZE: Final = 200_000_000
BROKERS: Final = (1, 2, 3)
EQUAL, CLEANED = "equal", "cleaned"
PEERS: Final = {EQUAL: "verify", CLEANED: "plan --fix compact"}


def sides_in(room: Path, size: int, options: Options, *, cleaned: bool) -> dict[int, Path]:
    """Create the replicas; return the log directory of each broker.

    Args:
        room: path of an empty folder.
        size: approximate size in bytes of one replica's ``.log`` files.
        options: options of ``--fix compact``.
        cleaned: True to compact brokers 2 and 3; else all three are equal.
    """
    roots = {broker: room / f"b{broker}" for broker in BROKERS}
    write_log(roots[1], HALF_STAYS, size)
    for broker in BROKERS[1:]:
        shutil.copytree(roots[1], roots[broker])
    for broker, root in roots.items():
        meta = root / "meta.properties"
        meta.write_text(re.sub("broker.id=.*", f"broker.id={broker}", meta.read_text()))
        if cleaned and broker > 1:
            report = apply(make_plan(str(root), options), options)
            assert report.exit_code is ExitCode.DONE, report.results
    return roots


def replicas(table: Table, setting: Setting) -> None:
    """Measure three equal replicas, and three of which two were cleaned."""
    for name in (EQUAL, CLEANED):
        with setting.room() as room:
            # Hashes of many keys do not fit into memory, and here everything is on one file system.
            scratch = room / "scratch"
            scratch.mkdir()
            options = replace(options_for(HALF_STAYS, room / "topics.json"), scratch=str(scratch))
            roots = sides_in(room, setting.scaled(SIZE), options, cleaned=name == CLEANED)
            _in_turns(table, name, roots, options, setting.runs)
            if name == CLEANED:
                written = facts([str(roots[1])], str(room / "b1.facts"), options)
                table.fact(
                    "facts, 1 kB records (MB per GB of logs)", 1000 * written.file_bytes / written.log_bytes
                )


def _in_turns(table: Table, name: str, roots: Mapping[int, Path], options: Options, runs: int) -> None:
    sides = parse_brokers([f"{broker}={root}" for broker, root in roots.items()])
    expected = m.HARMLESS if name == CLEANED else m.BYTE_EQUAL

    def compared() -> None:
        [verdict] = compare(sides, options).partitions
        assert verdict.verdict == expected, verdict
        assert verdict.records_read is (name == CLEANED)

    def peer() -> None:
        for root in roots.values():
            if name == CLEANED:
                make_plan(str(root), options)
            else:
                verify_log_dir(str(root), options)

    works = {f"replicas, {name}: compare": compared, f"replicas, {name}: {PEERS[name]}": peer}
    size = sum(log_bytes_of(root) for root in roots.values())
    for run in range(-1, 2 * runs):
        for label, work in works.items():
            if run >= runs:
                for root in roots.values():
                    make_cold(root)
            spent = spent_by(work)
            if run >= 0:  # once before all is compiled and warm
                table.note(label, size, spent, cold=run >= runs)
    table.against(*works)
