"""Apply reads each source once to check, write and prove it, and still finds every error.

Where the plan does not say which records stay, apply reads each source once more before, for its keys.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.engine.engine import InlineEngine
from krepair.engine.items import Failed
from krepair.errors import ExitCode
from krepair.formats.arrays import Int32s, Int64s, Uint8s
from krepair.plan.model import Plan
from krepair.rewrite.compaction import log as compaction_log
from krepair.rewrite.compaction import tasks as compaction_stays
from krepair.rewrite.compaction.check import SourceProof
from krepair.rewrite.compaction.items import CheckResult
from krepair.rewrite.compaction.written import ProvenBytes
from tests.builders import Batch, LogDir, data
from tests.compaction import histories
from tests.compaction.cases import OLD, batch, rec
from tests.compaction.directories import Verbs, options, without_stays
from tests.compaction.trying import twin_rules, with_twin
from tests.flips import flip
from tools.torture.scenes import look, visible

LOG = f"{0:020d}.log"
LARGE = data(90, [rec("large", "x" * 2000)], timestamp=OLD)
ACTIVE = f"{95:020d}.log"


def made(root: Path, *more: Batch) -> Verbs:
    """Two closed segments whose keys come again and again, plain and compressed, and an active one."""
    directory = LogDir(root / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    for base in (0, 45):
        batches = []
        for number in range(15):
            offset = base + 3 * number
            keys = [f"k{(offset + one) * 7 % 31}" for one in range(3)]
            batches.append(batch(offset, *keys, codec=(0, 0, 3, 4)[number % 4]))
        partition.segment(*batches, *(more if base else ()), mtime_ms=OLD)
    partition.segment(data(95, [rec("active")], timestamp=OLD))
    directory.write()
    return Verbs(root / "logs", options(root))


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some batches a window."""
    monkeypatch.setattr(compaction_log, "WINDOW_BYTES", 700)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many items of each task ran."""
    counts: Counter[str] = Counter()
    run = InlineEngine.map

    def running(self: InlineEngine, function: Any, items: Sequence[Any]) -> Iterator[Any]:
        items = list(items)
        counts[function.__name__] += len(items)
        yield from run(self, function, items)

    monkeypatch.setattr(InlineEngine, "map", running)
    return counts


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Bytes read of each ``.log``; of those that are staged the folder is named."""
    counts: Counter[str] = Counter()
    preadv = os.preadv

    def counting(descriptor: int, buffers: Any, position: int) -> int:
        got = preadv(descriptor, buffers, position)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        counts[path.name if path.parent.name == "t-0" else f"new {path.name}"] += got
        return got

    monkeypatch.setattr(os, "preadv", counting)
    return counts


@pytest.mark.parametrize("times", [1, 2])
def test_apply_reads_each_source_once_and_once_more_where_the_plan_does_not_say_what_stays(
    times: int, tmp_path: Path, tasks: Counter[str], read: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_log, "WINDOW_BYTES", 1 << 20)
    verbs = made(tmp_path)
    plan = verbs.plan() if times == 1 else without_stays(verbs.plan())
    sizes = {path.name: path.stat().st_size for path in verbs.log_dir.glob("t-0/*.log")}
    tasks.clear()
    read.clear()
    assert verbs.apply(plan).exit_code is ExitCode.DONE
    assert tasks["stage_compacted"] == 2
    assert tasks["check_group"] == 0
    for name, size in sizes.items():
        if name != ACTIVE:
            assert read[name] == times * size
    assert tasks["find_keys"] == (0 if times == 1 else 2)


def test_a_batch_that_passes_the_window_is_proven_by_a_reading_of_its_own(
    tmp_path: Path, tasks: Counter[str]
) -> None:
    verbs = made(tmp_path, LARGE)
    other = made(tmp_path / "other", LARGE)
    assert verbs.apply(verbs.plan()).exit_code is ExitCode.DONE
    assert tasks["check_group"] == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction_log, "WINDOW_BYTES", 1 << 20)
        assert other.apply(other.plan()).exit_code is ExitCode.DONE
    assert (verbs.log_dir / "t-0" / LOG).read_bytes() == (other.log_dir / "t-0" / LOG).read_bytes()


def test_histories_are_proven_while_they_are_written_whatever_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of: Counter[bool] = Counter()
    end = SourceProof.end

    def ended(self: SourceProof) -> CheckResult | Failed | None:
        found = end(self)
        assert not isinstance(found, Failed), found
        made_of[found is not None] += 1
        return found

    monkeypatch.setattr(SourceProof, "end", ended)
    for seed in range(8):
        monkeypatch.setattr(compaction_log, "WINDOW_BYTES", (300, 700, 2000, 1 << 20)[seed % 4])
        root = tmp_path / str(seed)
        with_twin(root, histories.of_seed(seed, codecs=seed % 2 == 1), twin_rules(seed))
        shutil.rmtree(root)
    assert made_of[True] > 10


# -- damage ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(24))
def test_any_flipped_bit_between_plan_and_apply_or_before_it_is_written_stops_apply(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    verbs = made(tmp_path, LARGE)
    plan = verbs.plan() if seed % 3 else without_stays(verbs.plan())
    path = verbs.log_dir / "t-0" / f"{chance.choice((0, 45)):020d}.log"
    place, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
    if seed % 2:
        flip(path, place, 1 << bit)
    else:
        run = InlineEngine.map

        def running(self: InlineEngine, function: Any, items: Sequence[Any]) -> Iterator[Any]:
            if function.__name__ == "stage_compacted":
                flip(path, place, 1 << bit)
            yield from run(self, function, items)

        monkeypatch.setattr(InlineEngine, "map", running)
    names = set(visible(look(verbs.log_dir)))
    report = verbs.apply(plan)
    assert report.exit_code is ExitCode.STALE_PLAN, report.results[0].why
    assert path.name in report.results[0].why
    assert set(visible(look(verbs.log_dir))) == names


# -- stages that are wrong ----------------------------------------------------------------------------
def _refused(verbs: Verbs, word: str, plan: Plan | None = None) -> None:
    """Apply ends with 14 and has committed nothing."""
    plan = plan or verbs.plan()
    names = set(visible(look(verbs.log_dir)))
    report = verbs.apply(plan)
    assert report.exit_code is ExitCode.VERIFY_FAILED, report.results[0].why
    assert word in report.results[0].why
    assert set(visible(look(verbs.log_dir))) == names


@pytest.mark.parametrize("by_plan", [True, False])
def test_a_wrong_decision_that_plan_and_apply_make_alike_is_found_by_the_proof(
    by_plan: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = compaction_stays.offsets_between

    def wrong(files: Any, first: int, after: int) -> Int64s:
        found = right(files, first, after)
        if first == 45 and len(found):
            found[0] -= 1  # the record before it stays instead
        return found

    verbs = made(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(compaction_stays, "offsets_between", wrong)
        plan = verbs.plan()
        if by_plan:
            patch.undo()
        _refused(
            verbs, "last record", plan if by_plan else without_stays(plan)
        )  # which key is told first is chance


def test_bytes_that_are_written_otherwise_than_they_were_proven_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_at = RealDisk.write_at

    def other(self: RealDisk, path: str, position: int, pieces: list[memoryview]) -> int:
        wrong = bytearray(b"".join(pieces))
        wrong[12] ^= 1  # the leader epoch, which no CRC covers
        return write_at(self, path, position, [memoryview(wrong)])

    monkeypatch.setattr(RealDisk, "write_at", other)
    _refused(made(tmp_path), "are not those that were written")


def test_bytes_that_a_wrong_stage_changes_before_they_are_proven_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = ProvenBytes.hold_kept

    def other(self: ProvenBytes, window: Uint8s, end: int, starts: Int32s, batch_classes: Uint8s) -> None:
        window[starts[0] + 12] ^= 1
        hold(self, window, end, starts, batch_classes)

    monkeypatch.setattr(ProvenBytes, "hold_kept", other)
    _refused(made(tmp_path), "a field of the header")


def test_a_window_that_the_proof_did_not_see_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = SourceProof.take
    seen = Counter[int]()

    def other(self: SourceProof, window: Uint8s, end: int, result: Uint8s, result_end: int) -> None:
        seen[id(self)] += 1
        if seen[id(self)] != 2:
            take(self, window, end, result, result_end)

    monkeypatch.setattr(SourceProof, "take", other)
    _refused(made(tmp_path), "bytes were read")


def test_a_stage_that_changes_the_window_of_the_source_is_found_by_its_crcs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_window = compaction_log.CompactedLog._from_window

    def other(self: compaction_log.CompactedLog, filled: int, position: int) -> Iterator[Any]:
        self._window[filled - 1] ^= 1  # the count of headers of the last record, in no key
        yield from from_window(self, filled, position)

    verbs = made(tmp_path)
    plan = verbs.plan()
    monkeypatch.setattr(compaction_log.CompactedLog, "_from_window", other)
    names = set(visible(look(verbs.log_dir)))
    assert verbs.apply(plan).exit_code in (ExitCode.STALE_PLAN, ExitCode.VERIFY_FAILED)
    assert set(visible(look(verbs.log_dir))) == names
