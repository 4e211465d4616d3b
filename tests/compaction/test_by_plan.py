"""The plan says which records stay, and apply follows it; a wrong plan never puts a wrong log in place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from krepair.commit.guards import SafePoints
from krepair.durable.real_disk import RealDisk
from krepair.engine.engine import InlineEngine
from krepair.errors import ExitCode, InterruptedAtSafePointError, KrepairError
from krepair.formats.arrays import Int64s
from krepair.formats.offset_set import as_text, of_text, packed, unpacked
from krepair.plan.model import Plan
from krepair.plan.planfile import seal
from krepair.plan.review import review
from krepair.rewrite.compaction import partitions
from krepair.rewrite.compaction import tasks as compaction_stays
from tests.builders import LogDir, Record, commit, data
from tests.compaction.cases import OLD, rec
from tests.compaction.directories import Verbs, groups_of, keys_of, logs, options, without_stays
from tests.flips import flip
from tools.torture.scenes import look, visible

FIRST, SECOND, UNCHANGED = 0, 30, 60
Change = Callable[[Int64s], Int64s]


def made(root: Path, **more: Any) -> Verbs:
    """Two segments that lose records, with a tombstone; one below the bound of which all stays; an active one."""
    directory = LogDir(root / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    for base in (FIRST, SECOND):
        batches = [
            data(
                base + 3 * number,
                [rec(f"k{(number + one) % 5}", "v" * 40) for one in range(3)],
                timestamp=OLD,
            )
            for number in range(9)
        ]
        batches.append(data(base + 27, [Record(b"gone%d" % base, None), rec("k9")], timestamp=OLD))
        partition.segment(*batches, mtime_ms=OLD)
    alone = [data(UNCHANGED + one, [rec(f"own{one}", "w" * 900)], timestamp=OLD) for one in range(8)]
    partition.segment(*alone, mtime_ms=OLD)
    partition.segment(data(UNCHANGED + 8, [rec("active")], timestamp=OLD))
    directory.write()
    settings = {"segment.bytes": "7000"}
    return Verbs(root / "logs", options(root, settings=settings, only_replica=("*",), **more))


def stays_of(plan: Plan) -> dict[int, list[int]]:
    """Base offset -> offsets that the plan names."""
    sources = [source for group in groups_of(plan.partitions[0]) for source in group.sources]
    return {
        source.base_offset: unpacked(of_text(source.by_key.stays), source.base_offset).tolist()
        for source in sources
        if source.by_key is not None and isinstance(source.by_key.stays, str)
    }


def with_stays(plan: Plan, base: int, text: str) -> Plan:
    """The plan with another text for one source, sealed."""
    part = plan.partitions[0]
    changes = []
    for group in groups_of(part):
        sources = [
            replace(source, compacted=replace(source.by_key, stays=text))
            if source.base_offset == base and source.by_key is not None
            else source
            for source in group.sources
        ]
        changes.append(replace(group, sources=tuple(sources)))
    return seal(replace(plan, partitions=(replace(part, changes=tuple(changes)),)))


def applied(verbs: Verbs, plan: Plan) -> ExitCode:
    """How apply ends; where it does not do it all, nothing of the log directory has changed."""
    before = visible(look(verbs.log_dir))
    try:
        code = verbs.apply(plan).exit_code
    except KrepairError as error:
        code = error.exit_code
    if code is not ExitCode.DONE:
        assert visible(look(verbs.log_dir)) == before
    return code


def test_the_plan_names_the_last_record_of_each_key_in_the_segments_that_change(tmp_path: Path) -> None:
    verbs = made(tmp_path)
    plan = verbs.plan()
    assert set(stays_of(plan)) == {FIRST, SECOND}
    assert len(stays_of(plan)[FIRST]) + len(stays_of(plan)[SECOND]) + 8 == keys_of(plan.partitions[0]).keys
    assert plan == verbs.plan()
    assert applied(verbs, plan) is ExitCode.DONE


def test_what_is_made_is_the_same_whether_apply_goes_by_the_plan_or_looks_for_the_keys(
    tmp_path: Path,
) -> None:
    here, there = made(tmp_path), made(tmp_path / "other")
    plan, other = here.plan(), without_stays(there.plan())
    assert (stays_of(other), applied(here, plan), applied(there, other)) == ({}, ExitCode.DONE, ExitCode.DONE)
    assert logs(here.log_dir / "t-0") == logs(there.log_dir / "t-0")
    assert here.verify(plan).problems == ()
    assert here.undo(plan).exit_code is ExitCode.DONE


@pytest.mark.parametrize("why", ["transactions", "no room", "segment without room"])
def test_where_more_decides_or_there_is_no_room_the_plan_names_nothing_and_apply_finds_the_keys(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "transactions":
        directory = LogDir(tmp_path / "logs")
        partition = directory.partition("t")
        partition.segment(
            data(0, [rec("a")], pid=7, txn=True),
            commit(1, pid=7),
            data(2, [rec("a")], timestamp=OLD),
            mtime_ms=OLD,
        )
        partition.segment(data(3, [rec("active")]))
        directory.write()
        verbs = Verbs(tmp_path / "logs", options(tmp_path))
    else:
        verbs = made(tmp_path)
        monkeypatch.setattr(partitions, "MOST_BYTES", 25 if why == "no room" else 4)
    plan = verbs.plan()
    assert stays_of(plan) == {}
    assert b'"stays"' not in str(plan).encode()
    assert applied(verbs, plan) is ExitCode.DONE


# -- a plan that was tampered with
def _less(offsets: Int64s) -> Int64s:
    return offsets[1:]


def _more(offsets: Int64s) -> Int64s:
    return np.append(offsets[0] - 1, offsets)


def _moved(offsets: Int64s) -> Int64s:
    return np.append(offsets[0] - 1, offsets[1:])


def _tombstone(offsets: Int64s) -> Int64s:
    """The tombstone is not the last of its key any more; the record before it is."""
    return np.where(offsets == FIRST + 27, FIRST + 26, offsets)


def _later(offsets: Int64s) -> Int64s:
    return np.append(offsets[:-1], 10_000)


def is_harmless(verbs: Verbs, other: Plan, tmp_path: Path) -> bool:
    """Whether a wrong plan is refused, or makes what the sound one makes: an offset may be of what goes by time."""
    right = made(tmp_path / "right")
    assert applied(right, right.plan()) is ExitCode.DONE
    code = applied(verbs, other)
    if code is ExitCode.DONE:
        return logs(verbs.log_dir / "t-0") == logs(right.log_dir / "t-0")
    return code in (ExitCode.STALE_PLAN, ExitCode.VERIFY_FAILED)


@pytest.mark.parametrize("change", [_less, _more, _moved, _tombstone, _later])
def test_a_plan_with_other_offsets_is_refused_before_anything_is_swapped(
    change: Change, tmp_path: Path
) -> None:
    verbs = made(tmp_path)
    plan = verbs.plan()
    offsets = np.array(stays_of(plan)[FIRST], np.int64)
    other = with_stays(plan, FIRST, as_text(packed(change(offsets), FIRST)))
    assert is_harmless(verbs, other, tmp_path)


@pytest.mark.parametrize("change", [_less, _more, _moved, _tombstone])
def test_a_plan_that_was_made_of_wrong_offsets_is_found_by_the_proof(
    change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = made(tmp_path)
    right = compaction_stays.offsets_between

    def wrong(files: Any, first: int, after: int) -> Int64s:
        found = right(files, first, after)
        return change(found) if first == FIRST and len(found) else found

    with monkeypatch.context() as patch:
        patch.setattr(compaction_stays, "offsets_between", wrong)
        plan = verbs.plan()
    assert len(stays_of(plan)) == 2
    assert is_harmless(verbs, plan, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "AAAA",
        as_text(packed(np.arange(9, dtype=np.int64), 0)),
        as_text(b"\xff\xff\xff\xff\0\xff"),
        None,
    ],
)
def test_a_text_that_is_no_set_or_that_of_another_segment_is_refused(
    text: str | None, tmp_path: Path
) -> None:
    verbs = made(tmp_path)
    plan = verbs.plan()
    source = groups_of(plan.partitions[0])[0].sources[0]
    assert source.by_key is not None
    cut = str(source.by_key.stays)[:-4]
    other = with_stays(plan, FIRST, cut if text is None else text)
    assert is_harmless(verbs, other, tmp_path)


def test_offsets_that_no_log_allows_are_refused_where_there_are_transactions(tmp_path: Path) -> None:
    """A plan of a log without transactions, and by the time of apply there is one with the same name and times."""
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    partition.segment(data(0, [rec("a")], timestamp=OLD), data(1, [rec("a")], timestamp=OLD), mtime_ms=OLD)
    partition.segment(data(2, [rec("active")]))
    directory.write()
    verbs = Verbs(tmp_path / "logs", options(tmp_path))
    plan = verbs.plan()
    assert stays_of(plan) == {0: [1]}
    path = verbs.log_dir / "t-0" / f"{2:020d}.log"
    path.write_bytes(data(2, [rec("active")], pid=7, txn=True).raw + commit(3, pid=7).raw)
    assert applied(verbs, plan) in (ExitCode.STALE_PLAN, ExitCode.DONE)


@pytest.mark.parametrize("longer", [20, -20, -80])
def test_offsets_that_move_the_batch_that_stays_as_the_last_one_are_refused(
    longer: int, tmp_path: Path
) -> None:
    """What stays has another size than the plan has, so no batch begins where the last one has to."""
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    records = [rec("a", "v" * (100 + longer)), rec("a", "v" * 100), rec("b"), Record(b"gone", None)]
    partition.segment(*[data(at, [record], timestamp=OLD) for at, record in enumerate(records)], mtime_ms=OLD)
    partition.segment(data(4, [rec("active")], timestamp=OLD))
    directory.write()
    verbs = Verbs(tmp_path / "logs", options(tmp_path))
    plan = verbs.plan()
    assert stays_of(plan) == {0: [1, 2, 3]}
    assert groups_of(plan.partitions[0])[0].sources[0].last_position > 0
    other = with_stays(plan, 0, as_text(packed(np.array([0, 2, 3]), 0)))
    assert not review(other)
    assert applied(verbs, other) is ExitCode.STALE_PLAN
    report = verbs.apply(other)
    assert f"t-0/{0:020d}.log" in report.results[0].why
    assert applied(verbs, plan) is ExitCode.DONE


# -- damage between plan and apply
EPOCH, ATTRIBUTES, TIME = 12, 22, 30


@pytest.mark.parametrize("when", ["before", "while it reads"])
@pytest.mark.parametrize("base", [FIRST, SECOND, UNCHANGED])
@pytest.mark.parametrize("place", [EPOCH, ATTRIBUTES, TIME, 80, -2])
def test_a_flipped_bit_in_a_header_or_a_record_of_any_segment_stops_apply(
    place: int, base: int, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = made(tmp_path)
    plan = verbs.plan()
    path = verbs.log_dir / "t-0" / f"{base:020d}.log"
    if when == "before":
        flip(path, place, bits=4)
    else:
        run = InlineEngine.map

        def running(self: InlineEngine, function: Any, items: Any) -> Any:
            if function.__name__ == ("check_group" if base == UNCHANGED else "stage_compacted"):
                monkeypatch.setattr(InlineEngine, "map", run)
                flip(path, place, bits=4)
            yield from run(self, function, items)

        monkeypatch.setattr(InlineEngine, "map", running)
    report = verbs.apply(plan)
    if when == "before" or base != UNCHANGED:
        assert report.exit_code is ExitCode.STALE_PLAN, report.results[0].why
        assert path.name in report.results[0].why
        assert not list((verbs.log_dir / "t-0").glob("*.deleted"))


def test_an_index_of_aborted_transactions_that_came_since_the_plan_stops_apply(tmp_path: Path) -> None:
    verbs = made(tmp_path)
    plan = verbs.plan()
    (verbs.log_dir / "t-0" / f"{FIRST:020d}.txnindex").write_bytes(b"\1" * 34)
    assert applied(verbs, plan) is not ExitCode.DONE


# -- interrupted
class _KilledError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("keep", ["inplace", "until-verified"])
def test_apply_goes_on_by_the_plan_wherever_an_earlier_one_was_killed(
    keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(tmp_path / "whole", merge=False)
    plan = whole.plan()
    assert len(groups_of(plan.partitions[0])) == 2
    assert applied(whole, plan) is ExitCode.DONE
    expected = logs(whole.log_dir / "t-0")
    rename, swapped = RealDisk.rename, set()
    for last in range(0, 40, 3):
        verbs = made(tmp_path / str(last), merge=False, keep=keep)
        plan = verbs.plan()
        left = [last]

        def renaming(self: RealDisk, source: str, target: str, left: list[int] = left) -> None:
            if not left[0]:
                raise _KilledError
            left[0] -= 1
            rename(self, source, target)

        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "rename", renaming)
            with suppress(_KilledError):
                verbs.apply(plan)
        now = logs(verbs.log_dir / "t-0")
        swapped.add(sum(now.get(base) == expected[base] for base in (FIRST, SECOND)))
        assert verbs.apply(plan).exit_code is ExitCode.DONE, last
        assert logs(verbs.log_dir / "t-0") == expected
    assert swapped == {0, 1, 2}


def test_a_plan_that_was_purged_before_all_of_it_was_applied_has_to_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = made(tmp_path, merge=False)
    plan, before = verbs.plan(), logs(verbs.log_dir / "t-0")

    def stopping(self: SafePoints) -> None:
        if logs(verbs.log_dir / "t-0")[FIRST] != before[FIRST]:
            raise InterruptedAtSafePointError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(SafePoints, "check", stopping)
        assert verbs.apply(plan).interrupted
    assert verbs.purge(plan).exit_code is ExitCode.DONE
    now = logs(verbs.log_dir / "t-0")
    report = verbs.apply(plan)
    assert "the keys that it held are lost" in report.results[-1].why
    assert report.exit_code is not ExitCode.DONE
    assert logs(verbs.log_dir / "t-0") == now
    assert verbs.purge(plan).exit_code is ExitCode.DONE  # of what was begun once more
    again = verbs.plan()
    assert verbs.apply(again).exit_code is ExitCode.DONE
    assert len(logs(verbs.log_dir / "t-0")[SECOND]) < len(now[SECOND])
