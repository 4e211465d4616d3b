"""Verification accepts correct new segments, and names the place of each single error."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from krepair.durable.attributes import read_attributes
from krepair.durable.tree import Tree
from krepair.engine.items import Failed, FinishItem, FinishResult, PartitionItem, VerifyItem, VerifyResult
from krepair.formats import batch_v2
from krepair.logdir.fingerprint import digest_file
from krepair.plan.model import RewriteSegments, SourceSegment
from krepair.rewrite.segments.verify import (
    compare_originals,
    compare_with_sources,
    verify_group,
    verify_segment,
)
from tests import builders
from tests.builders import Batch, abort, commit, data, emptied, joined
from tests.engine.travelled import failure_of
from tests.places import place_of
from tests.plan import plans

BASE = 100
FIRST = [data(100, 3, pid=7, txn=True), abort(103, pid=7), commit(104, pid=8), data(105, 2)]
SECOND = [commit(110, pid=9), emptied(111, 112, pid=9), data(113, 1), data(114, 2), commit(116, pid=9)]
KEPT = [*FIRST[:2], FIRST[3], SECOND[2], SECOND[3], SECOND[4]]
MTIME_NS = 1_700_000_000_000_000_000


def source(base: int, kept: list[Batch], **fields: Any) -> SourceSegment:
    """Of which these batches stay."""
    values: dict[str, Any] = {
        "kept_bytes": sum(len(batch.raw) for batch in kept),
        "kept_batches": len(kept),
        "kept_records": sum(batch.records for batch in kept if not batch.control),
        "kept_markers": sum(batch.control and batch.records > 0 for batch in kept),
        "aborted_kept": (),
    }
    return plans.source(base, **(values | fields))


def change(**fields: Any) -> RewriteSegments:
    sources = (source(100, KEPT[:3], aborted_kept=(0,)), source(110, KEPT[3:]))
    values = {"log_bytes": len(joined(KEPT)), "index_bytes_at_most": 1000, "batches": len(KEPT),
              "mtime_ns": MTIME_NS, "last_offset": 116}  # fmt: skip
    return plans.rewritten(*fields.pop("sources", sources), **(values | fields))


def write(folder: Path, base: int, batches: list[Batch], **files: bytes) -> Path:
    """A segment with its indexes; all files of one age. Other bytes may be given by suffix."""
    index, times = builders.indexes(base, batches, 100)
    replay = builders.Replay()
    found = [entry for batch in batches if (entry := replay.take(batch)) is not None]
    aborted = b"".join(struct.pack(">hqqqq", 0, *entry) for entry in found)
    contents = {"log": joined(batches), "index": index, "timeindex": times, "txnindex": aborted} | files
    folder.mkdir(exist_ok=True)
    for suffix, content in contents.items():
        path = folder / f"{base:020d}.{suffix}"
        path.write_bytes(content)
        os.utime(path, ns=(MTIME_NS, MTIME_NS))
    return folder / f"{base:020d}"


def checked(item: FinishItem) -> Any:
    with Tree(item.place.log_dir) as tree:
        return verify_group(item, tree)


def item_of(stem: Path, made: RewriteSegments | None = None) -> FinishItem:
    return FinishItem(
        place=place_of(stem.parent),
        change=made or change(),
        stage=str(stem.parent),
        attributes=read_attributes(f"{stem}.log"),
        index_interval_bytes=100,
    )


def verified(tmp_path: Path, made: RewriteSegments | None = None, **files: bytes) -> Any:
    return checked(item_of(write(tmp_path / "t-0", BASE, KEPT, **files), made))


def test_new_segment_that_is_as_planned_passes_with_its_figures(tmp_path: Path) -> None:
    assert verified(tmp_path) == FinishResult(batches=6, bytes=len(joined(KEPT)))


NAME = f"t-0: new {BASE:020d}"


def first_with(**fields: Any) -> RewriteSegments:
    return change(sources=(replace(change().sources[0], **fields), change().sources[1]))


def second_with(**fields: Any) -> RewriteSegments:
    return change(sources=(change().sources[0], replace(change().sources[1], **fields)))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            first_with(kept_batches=4),
            "of segment 100 [4, 5, 1] (batches, records, markers) were to stay, the new log has [3, 5, 1]",
        ),
        (
            first_with(kept_records=4),
            "of segment 100 [3, 4, 1] (batches, records, markers) were to stay, the new log has [3, 5, 1]",
        ),
        (
            first_with(kept_markers=2),
            "of segment 100 [3, 5, 2] (batches, records, markers) were to stay, the new log has [3, 5, 1]",
        ),
        (
            second_with(kept_records=4),
            "of segment 110 [3, 4, 1] (batches, records, markers) were to stay, the new log has [3, 3, 1]",
        ),
        (change(last_offset=115), "a last offset of at most 115 was expected, found 116"),
        (change(log_bytes=9), f"9 bytes were expected, found {len(joined(KEPT))}"),
    ],
)
def test_log_that_is_not_as_planned_is_told_with_both_figures(
    tmp_path: Path, made: RewriteSegments, words: str
) -> None:
    assert verified(tmp_path, made) == Failed("verify", f"{NAME}.log: {words}")


def test_boundary_between_two_sources_is_the_base_of_the_second(tmp_path: Path) -> None:
    """A batch at the very base offset belongs to the second source."""
    at_base = [data(100, 1), data(110, 1)]
    made = change(
        sources=(source(100, at_base[:1]), source(110, at_base[1:])),
        log_bytes=len(joined(at_base)),
        batches=2,
    )
    stem = write(tmp_path / "t-0", BASE, at_base)
    item = item_of(stem, made)
    assert failure_of(checked(item)) == ""
    assert failure_of(checked(replace(item, change=replace(made, last_offset=110)))) == ""
    assert "at most 109 was expected" in checked(replace(item, change=replace(made, last_offset=109))).why


def test_emptied_control_batch_is_no_marker(tmp_path: Path) -> None:
    kept = [data(100, 1), emptied(101, pid=7, control=True)]
    one = source(100, kept, kept_markers=0, kept_records=1)
    made = change(sources=(one,), log_bytes=len(joined(kept)), batches=2)
    stem = write(tmp_path / "t-0", BASE, kept)
    item = item_of(stem, made)
    assert checked(item) == FinishResult(batches=2, bytes=len(joined(kept)))


@pytest.mark.parametrize("number", range(0, len(joined(KEPT)), 7))
def test_flipped_bit_anywhere_that_the_crc_covers_is_found(tmp_path: Path, number: int) -> None:
    log = bytearray(joined(KEPT))
    starts = [0]
    for batch in KEPT:
        starts.append(starts[-1] + len(batch.raw))
    inside = number - max(start for start in starts if start <= number)
    log[number] ^= 4
    found = verified(tmp_path, log=bytes(log))
    assert failure_of(found) == "verify" or 12 <= inside < 16 or inside < 8


def test_position_of_a_bad_batch_is_told(tmp_path: Path) -> None:
    log = bytearray(joined(KEPT))
    log[len(KEPT[0].raw) + 30] ^= 1
    assert verified(tmp_path, log=bytes(log)).why.startswith(f"{NAME}.log, position {len(KEPT[0].raw)}: ")


@pytest.mark.parametrize(
    ("files", "where"),
    [
        ({"index": struct.pack(">ii", 1, 1)}, ".index, position 0"),
        ({"index": struct.pack(">ii", 5, len(joined(KEPT)))}, ".index, position 0"),
        ({"timeindex": struct.pack(">qi", builders.NOW_MS + 1, 3)}, ".timeindex, position 0"),
        ({"timeindex": struct.pack(">qi", builders.NOW_MS - 1, 16)}, ".timeindex, position 0"),
        ({"txnindex": struct.pack(">hqqqq", 0, 8, 100, 103, 104)}, ".txnindex, position 0"),
        ({"txnindex": struct.pack(">hqqqq", 0, 7, 100, 102, 104)}, ".txnindex, position 0"),
    ],
)
def test_index_that_lies_is_told_with_its_byte(tmp_path: Path, files: dict[str, bytes], where: str) -> None:
    assert verified(tmp_path, **files).why.startswith(NAME + where)


def test_entries_of_aborted_transactions_are_counted(tmp_path: Path) -> None:
    assert verified(tmp_path, txnindex=b"").why == f"{NAME}.txnindex: expected 1 entry, found 0"
    made = first_with(aborted_kept=(0, 1))
    assert verified(tmp_path, made).why == f"{NAME}.txnindex: expected 2 entries, found 1"


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "txnindex"])
def test_file_of_another_mode_or_time_is_told(tmp_path: Path, suffix: str) -> None:
    stem = write(tmp_path / "t-0", BASE, KEPT)
    item = item_of(stem)
    path = f"{stem}.{suffix}"
    os.chmod(path, 0o600)
    assert checked(item).why.startswith(f"{NAME}.{suffix}: owner, group, mode, mtime")
    os.chmod(path, item.attributes.mode)
    os.utime(path, ns=(MTIME_NS, MTIME_NS + 1))
    assert checked(item).why.startswith(f"{NAME}.{suffix}: owner, group, mode, mtime")


def test_missing_index_is_no_wrong_attribute(tmp_path: Path) -> None:
    made = change(sources=(source(100, KEPT[:3]), source(110, KEPT[3:])))
    stem = write(tmp_path / "t-0", BASE, KEPT)
    os.unlink(f"{stem}.txnindex")
    item = item_of(stem, made)
    assert failure_of(checked(item)) == ""


# -- one segment of a log directory ----------------------------------------------------------------------------------


def segment(tmp_path: Path, *, active: bool = False, **files: bytes) -> Any:
    write(tmp_path / "t-0", BASE, KEPT, **files)
    return verify_segment(
        VerifyItem(place=place_of(tmp_path / "t-0"), base_offset=BASE, size=0, active=active)
    )


def test_segment_that_is_whole_has_no_problem(tmp_path: Path) -> None:
    assert segment(tmp_path) == VerifyResult(batches=6, bytes=len(joined(KEPT)), end_offset=117, markers=True)


def test_every_problem_of_a_segment_is_told_with_its_file_and_byte(tmp_path: Path) -> None:
    lies = {"index": struct.pack(">ii", 1, 1), "timeindex": struct.pack(">qi", builders.NOW_MS + 1, 3)}
    found = segment(tmp_path, **lies)
    assert [(name, position) for name, position, _ in found.problems] == [
        (f"{BASE:020d}.index", 0),
        (f"{BASE:020d}.timeindex", 0),
    ]
    # of a segment that a broker may still write to, only what lies within the log is told
    assert [(name, position) for name, position, _ in segment(tmp_path, active=True, **lies).problems] == [
        (f"{BASE:020d}.index", 0)
    ]


def test_batch_below_the_base_offset_is_told(tmp_path: Path) -> None:
    found = segment(tmp_path, log=builders.data(BASE - 5).raw + joined(KEPT))
    text = f"offset {BASE - 5} is below the segment's base offset {BASE}"
    assert found.problems == ((f"{BASE:020d}.log", 0, text),)


def test_offsets_without_a_record_are_no_problem_here(tmp_path: Path) -> None:
    """Compaction makes such gaps; check tells of them by the topic's policy (KR310, KR311)."""
    last = KEPT[-1].last_offset
    log = joined(KEPT) + builders.data(last + 1000, timestamp=builders.NOW_MS).raw
    found = segment(tmp_path, log=log)
    assert all(name.endswith("index") for name, _, _ in found.problems)
    assert found.batches == len(KEPT) + 1


def test_segment_in_another_directory_is_not_read_whatever_the_host_is_called(tmp_path: Path) -> None:
    write(tmp_path / "t-0", BASE, KEPT)
    here = replace(place_of(tmp_path / "t-0"), host="elsewhere.example")
    assert failure_of(verify_segment(VerifyItem(place=here, base_offset=BASE, size=0, active=False))) == ""
    there = replace(here, log_dir_inode=here.log_dir_inode + 1)
    found = verify_segment(VerifyItem(place=there, base_offset=BASE, size=0, active=False))
    assert failure_of(found) == "elsewhere"
    assert "is not the same directory on this worker" in found.why


def test_torn_log_is_told_alone(tmp_path: Path) -> None:
    found = segment(tmp_path, log=joined(KEPT)[:-1])
    position = len(joined(KEPT[:-1]))
    assert [(name, byte) for name, byte, _ in found.problems] == [(f"{BASE:020d}.log", position)]
    assert (found.batches, found.bytes) == (5, len(joined(KEPT)) - 1)


def test_segment_that_cannot_be_read_is_a_failure_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    found = verify_segment(
        VerifyItem(place=place_of(tmp_path / "t-0"), base_offset=BASE, size=0, active=False)
    )
    assert failure_of(found) == "unreadable"
    assert found.why == f"t-0/{BASE:020d}.log: {os.strerror(2)} (ENOENT)"


# -- a new log against its sources, byte for byte --------------------------------------------------------------------


def compared(tmp_path: Path, new: list[Batch] | bytes, *sources: list[Batch]) -> str:
    sources = sources or (FIRST, SECOND)
    for batches in sources:
        write(tmp_path / "keep", batches[0].base_offset, batches)
    write(tmp_path / "new", BASE, KEPT, log=new if isinstance(new, bytes) else joined(new))
    made = change(sources=tuple(source(batches[0].base_offset, []) for batches in sources))
    return compare_with_sources(made, str(tmp_path / "new"), str(tmp_path / "keep"))


def test_log_without_batches_that_may_go_is_that_of_its_sources(tmp_path: Path) -> None:
    assert compared(tmp_path, KEPT) == ""
    assert compared(tmp_path, [*FIRST, *SECOND]) == ""
    assert compared(tmp_path, [FIRST[0], FIRST[3], SECOND[2], SECOND[3]]) == ""


def empty_of(batch: Batch) -> Batch:
    raw = batch_v2.empty_batch(batch_v2.decode_header(batch.raw))
    return Batch(raw, batch.base_offset, batch.last_offset, 0, -1, 0, 0, 0, 0)


def test_marker_that_was_emptied_as_the_last_batch_is_right(tmp_path: Path) -> None:
    assert compared(tmp_path, [*KEPT[:-1], empty_of(SECOND[4])]) == ""
    assert compared(tmp_path, [FIRST[0], empty_of(FIRST[1]), *KEPT[2:]]) == ""


@pytest.mark.parametrize("missing", [0, 2, 3, 4])
def test_batch_with_records_that_is_missing_is_found(tmp_path: Path, missing: int) -> None:
    name = 100 if missing < 3 else 110
    new = [batch for number, batch in enumerate(KEPT) if number != missing]
    assert compared(tmp_path, new) == f"{name:020d}.log: a batch with records is not in the new log"


def test_batch_that_no_source_has_is_found(tmp_path: Path) -> None:
    strange = data(107, 1)
    assert compared(tmp_path, [*KEPT[:3], strange, *KEPT[3:]]).endswith(
        "the new log has a batch that the original has not"
    )
    behind = data(120, 1)
    assert compared(tmp_path, [*KEPT, behind]) == "the new log has batches after its sources' last one"
    before = data(99, 1)
    assert compared(tmp_path, [before, *KEPT]).endswith("the new log has a batch that the original has not")


@pytest.mark.parametrize("number", range(len(KEPT)))
@pytest.mark.parametrize("byte", [12, 17, 30, 61, -1])
def test_one_byte_that_differs_is_found_with_both_positions(tmp_path: Path, number: int, byte: int) -> None:
    raw = bytearray(KEPT[number].raw)
    raw[byte] ^= 1
    new = b"".join(bytes(raw) if place == number else batch.raw for place, batch in enumerate(KEPT))
    position = sum(len(batch.raw) for batch in KEPT[:number])
    batches = FIRST if number < 3 else SECOND
    before = batches[: batches.index(KEPT[number])]
    old = sum(len(batch.raw) for batch in before)
    assert compared(tmp_path, new) == (
        f"{batches[0].base_offset:020d}.log: the batch at position {old} is not byte for byte in the new log "
        f"(position {position})"
    )


def test_batch_with_records_that_was_emptied_is_right_only_as_the_emptied_form_of_itself(
    tmp_path: Path,
) -> None:
    """That it may be emptied at all is a matter of the plan's counts; here its form is looked at."""
    wrong = empty_of(SECOND[4])
    raw = bytearray(wrong.raw)
    raw[30] ^= 1
    new = [*KEPT[:-1], Batch(bytes(raw), 116, 116, 0, -1, 0, 0, 0, 0)]
    assert "is not byte for byte in the new log" in compared(tmp_path, new)


def test_one_source_after_another_is_compared(tmp_path: Path) -> None:
    third = [data(120, 1), commit(121, pid=3), data(122, 1)]
    assert compared(tmp_path, [*KEPT, third[0], third[2]], FIRST, SECOND, third) == ""
    assert compared(tmp_path, [*KEPT, third[0]], FIRST, SECOND, third).startswith(f"{120:020d}.log: ")


def test_source_of_markers_only_may_leave_nothing(tmp_path: Path) -> None:
    assert compared(tmp_path, FIRST, FIRST, [commit(110, pid=1), commit(111, pid=2)]) == ""


def test_source_that_is_gone_is_named(tmp_path: Path) -> None:
    write(tmp_path / "new", BASE, KEPT)
    (tmp_path / "keep").mkdir()
    found = compare_with_sources(change(), str(tmp_path / "new"), str(tmp_path / "keep"))
    assert found == f"{tmp_path}/keep/{100:020d}.log: {os.strerror(2)} (ENOENT)"


def test_source_that_is_damaged_is_named(tmp_path: Path) -> None:
    write(tmp_path / "keep", 100, FIRST, log=joined(FIRST)[:-1])
    write(tmp_path / "new", BASE, KEPT)
    made = change(sources=(source(100, []),))
    found = compare_with_sources(made, str(tmp_path / "new"), str(tmp_path / "keep"))
    assert found.startswith(f"{100:020d}.log: ")


def test_nothing_is_compared_in_another_directory_of_the_same_name(tmp_path: Path) -> None:
    folder, keep = tmp_path / "logs" / "t-0", tmp_path / "logs" / "keep"
    folder.parent.mkdir()
    write(keep, 100, FIRST)
    write(folder, BASE, FIRST)
    item = PartitionItem(place=place_of(folder), bytes_to_read=0)
    arguments = change(sources=(source(100, []),)), str(keep)
    assert compare_originals(item, *arguments) is None
    other = replace(item, place=replace(item.place, log_dir_inode=1))
    assert "is not the same directory" in str(compare_originals(other, *arguments))


def large(offset: int, size: int) -> Batch:
    return data(offset, [builders.Record(b"k", b"x" * size)])


@pytest.mark.parametrize("flip", [None, 100, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) + 99, -1])
def test_batch_larger_than_the_piece_that_is_read_is_compared_to_its_end(
    tmp_path: Path, flip: int | None
) -> None:
    old = [data(100, 1), large(101, 2_200_000), data(102, 1)]
    raw = bytearray(old[1].raw)
    if flip is not None:
        raw[flip] ^= 1
    new = old[0].raw + bytes(raw) + old[2].raw
    found = compared(tmp_path, new, old)
    assert (found == "") == (flip is None), found


@pytest.mark.parametrize("count", [3, 40])
def test_long_runs_with_gaps_are_compared_piece_by_piece(tmp_path: Path, count: int) -> None:
    """Stretches of equal batches, between which markers went, over more than one piece of a megabyte."""
    old = [made for n in range(count) for made in (large(100 + 2 * n, 100_000), commit(101 + 2 * n, pid=1))]
    kept = [batch for batch in old if not batch.control]
    assert compared(tmp_path, kept, old) == ""
    for number in (0, count // 2, count - 1):
        raw = bytearray(kept[number].raw)
        raw[50_000] ^= 1
        changed = [*kept]
        changed[number] = Batch(
            bytes(raw), *[getattr(kept[number], name) for name in list(Batch.__dataclass_fields__)[1:]]
        )
        assert "is not byte for byte in the new log" in compared(tmp_path, changed, old)


def test_index_that_is_not_the_one_that_was_made_is_told_though_it_does_not_lie(tmp_path: Path) -> None:
    stem = write(tmp_path / "t-0", BASE, KEPT)
    item = item_of(stem)
    names = [f"{stem.name}{suffix}" for suffix in (".index", ".timeindex", ".txnindex")]
    made = {name: digest_file(str(stem.parent / name)) for name in names}
    assert failure_of(checked(replace(item, made=made))) == ""
    for name in names:
        found = checked(replace(item, made=made | {name: "0" * 32}))
        assert found.why == f"t-0: new {name}: its bytes are not those that were made"
