"""Crafted plans and journals, and traps in folders: a seeded sample of ``make torture``, and what it has found."""

from __future__ import annotations

import contextlib
import shutil
import zlib
from pathlib import Path

import msgspec
import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, RefusedError
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from tests.durable.disks import SimulatedCrash, StoppingDisk
from tests.ops.by_hand import take_back_by_hand
from tests.torture.programme import run_part, wrong_of
from tools.torture.scenes import Placed, build, look, visible

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@needs_compiler
@pytest.mark.slow
def test_nothing_outside_is_touched_and_nothing_is_lost_whatever_was_crafted(tmp_path: Path) -> None:
    state = run_part("crafted", tmp_path, "--samples", "1")
    assert not state.all_wrong, wrong_of(state)
    assert {name: state.figures[f"{name} cases"] for name in ("plan", "journal", "planted", "raced")} == {
        "plan": 7, "journal": 7, "planted": 7, "raced": 7,
    }  # fmt: skip


def with_another_name_of_the_new_log(placed: Placed) -> Path:
    """The journal whose last swap says that it makes no ``.log``; its checksum is right."""
    for path in sorted(placed.path.rglob("journal")):
        lines = path.read_bytes().splitlines()
        for number in reversed(range(len(lines))):
            line = msgspec.json.decode(lines[number][9:])
            if isinstance(line, list) and line[0].get("executor") == "segments":
                line[0]["made"][0]["name"] = "another"
                body = msgspec.json.encode(line)
                lines[number] = b"%08x %b" % (zlib.crc32(body), body)
                path.write_bytes(b"\n".join(lines) + b"\n")
                return path
    raise AssertionError("no swap has begun")


@pytest.mark.parametrize(("verb", "stop"), [(apply, 60), (undo, 60), (undo, 10_000), (purge, 10_000)])
def test_record_of_a_swap_without_its_log_is_refused_and_the_way_out_works(
    memory_dir: Path, verb: object, stop: int
) -> None:
    scene = build("markers")
    placed = scene.place(memory_dir)
    before = visible(look(placed.path))
    with contextlib.suppress(SimulatedCrash):
        apply(placed.plan, scene.options, disk=StoppingDisk(RealDisk(), stop))  # type: ignore[arg-type]
    journal = with_another_name_of_the_new_log(placed)
    begun = visible(look(placed.path))
    try:
        report = verb(placed.plan, scene.options)  # type: ignore[operator]
        assert report.exit_code in {ExitCode.PARTLY, ExitCode.REFUSED}, report.results
        said = " ".join(result.why for result in report.results)
    except RefusedError as error:
        said = error.message
    assert "expected a record that can follow those before it" in said
    assert visible(look(placed.path)) == begun
    journal.unlink()
    assert take_back_by_hand(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert visible(look(placed.path)) == before
