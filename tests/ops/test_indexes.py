"""Indexes of real log directories: found, mended by plan and apply, verified, and taken back."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from krepair.errors import ExitCode
from krepair.findings.reports import LogDirReport
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.plan.model import Plan, ReplaceFile, RewriteSegments
from tests import builders, naive
from tests.fixture_dirs import unpack
from tests.flips import flip
from tests.ops.inline import Inline, there_and_back
from tests.ops.scene import scene, tree
from tests.ops.stops import each_stop

NOW_MS = 1_795_261_500_763  # an hour after the newest record
DAY_MS = 86_400_000
FIRST = "00000000000000000000"
BASES = (0, 240, 480, 720, 960)


VERBS = Inline(now_ms=NOW_MS, settings=(("retention.ms", str(DAY_MS)),))
options, checked = VERBS.options, VERBS.checked


def rules(report: LogDirReport) -> list[tuple[str, str]]:
    """Rule and file of each finding, without the originals that apply keeps."""
    return sorted((finding.rule, finding.file) for finding in report.findings if finding.rule != "KR901")


def planned(log_dir: Path, fix: str = "index", **more: object) -> Plan:
    return VERBS.planned(log_dir, fixes=(fix,), **more)


def changes(plan: Plan) -> dict[str, tuple[str, str]]:
    found = [change for each in plan.partitions for change in each.changes]
    assert all(isinstance(change, ReplaceFile) for change in found)
    return {change.name: (change.method, change.rule) for change in found if isinstance(change, ReplaceFile)}


@pytest.fixture
def padded(tmp_path: Path) -> Path:
    return unpack("timeindex-padded-2.2.1", tmp_path)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return unpack("timeindex-ok-2.2.1", tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "timeindex-ok-2.2.1",
        "compact-2.2.1-before",
        "compact-2.2.1-after-2.2.1",
        "offsets-bloat-2.2.0-clean",
        "offsets-cleaned-2.2.1",
        "offsets-tv2-4.3.1",
        "oldformat-2.2.1-before",
    ],
)
def test_indexes_that_real_brokers_and_cleaners_wrote_are_true(tmp_path: Path, name: str) -> None:
    report = checked(unpack(name, tmp_path), settings=())
    assert [finding for finding in report.findings if finding.rule.startswith("KR2")] == []


def test_padding_is_found_with_its_evidence_and_the_segment_that_would_go(padded: Path) -> None:
    report = checked(padded, broker_version="3.9.2")
    expected = [
        (rule, f"{base:020d}{suffix}")
        for base in (0, 480)
        for rule, suffix in (("KR203", ".index"), ("KR201", ".timeindex"))
    ]
    assert rules(report) == sorted([*expected, ("KR802", f"{FIRST}.log")])
    time_index = next(finding for finding in report.findings if finding.rule == "KR201")
    assert (time_index.position, time_index.evidence.partition(";")[0]) == (
        276,
        "23 entries, then 873790 of zeros",
    )
    told = next(finding.evidence for finding in report.findings if finding.rule == "KR802")
    assert "reads 1970-01-01T00:00:00.000Z" in told
    assert "if its cleanup.policy is delete, which is not known here, retention.ms" in told
    assert (report.forecast[0].expected, report.retention_not_known) == ("start", ("f-t-0",))
    known = checked(padded, broker_version="3.9.2", settings=(("cleanup.policy", "delete"),))
    assert (known.forecast[0].expected, known.retention_not_known) == ("delete", ())


def test_a_broker_of_2_2_repairs_it_itself_so_that_nothing_goes(padded: Path) -> None:
    report = checked(padded, broker_version="2.2.1")
    assert "KR802" not in {finding.rule for finding in report.findings}
    assert report.forecast[0].expected == "recover"


@pytest.mark.parametrize("fix", ["index", "index=auto", "index=truncate", "index=regenerate"])
def test_plan_apply_verify_and_undo_of_padded_indexes(padded: Path, tmp_path: Path, fix: str) -> None:
    whole = unpack("timeindex-ok-2.2.1", tmp_path)
    before = tree(padded)
    plan = planned(padded, fix)
    method = "regenerate" if fix == "index=regenerate" else "truncate"
    assert changes(plan) == {
        f"{base:020d}{suffix}": (method, rule)
        for base in (0, 480)
        for suffix, rule in ((".index", "KR203"), (".timeindex", "KR201"))
    }
    with there_and_back(padded, plan, options()):
        assert rules(checked(padded)) == []
        assert changes(planned(padded, fix)) == {}
        # cutting gives the bytes from before the padding
        for index in whole.glob("f-t-0/*index") if method == "truncate" else ():
            assert (padded / "f-t-0" / index.name).read_bytes() == index.read_bytes()
        after = tree(padded, private=False)
        assert {name for name in before if before[name] != after[name]} == {
            f"f-t-0/{name}" for name in changes(plan)
        }
        for name in changes(plan):  # owner, mode and modification time are kept
            assert after[f"f-t-0/{name}"][:4] == before[f"f-t-0/{name}"][:4]
        assert {result.outcome for result in apply(plan, options()).results} == {"already"}


@pytest.mark.parametrize("fix", ["index=truncate", "index=regenerate"])
def test_purge_frees_the_old_files_and_a_later_apply_has_nothing_to_do(whole: Path, fix: str) -> None:
    """Also where the new file has the size and time of the old one."""
    path = whole / "f-t-0" / f"{FIRST}.timeindex"
    right = path.read_bytes()
    path.write_bytes(right + bytes(24) if fix == "index=truncate" else right[:8] + b"\x11" + right[9:])
    plan = planned(whole, fix)
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert purge(plan, options()).exit_code == ExitCode.DONE
    assert [name for name in tree(whole) if "krepair~" in name] == []
    before = tree(whole)
    assert {result.outcome for result in apply(plan, options()).results} == {"already"}
    assert tree(whole) == before
    assert rules(checked(whole)) == []


def test_a_time_index_stays_where_cutting_is_not_enough(whole: Path) -> None:
    path = whole / "f-t-0" / f"{FIRST}.timeindex"
    path.write_bytes(path.read_bytes()[:-12])
    plan = planned(whole, "index=truncate")
    assert changes(plan) == {}
    (note, *_) = plan.partitions[0].notes
    assert "cutting is not enough" in note or "check out" in note


def test_preallocated_indexes_of_the_active_segment_are_left_and_named(whole: Path) -> None:
    path = whole / "f-t-0" / f"{BASES[-1]:020d}.timeindex"
    path.write_bytes(path.read_bytes() + bytes(12_000))
    assert rules(checked(whole)) == []
    plan = planned(whole)
    assert changes(plan) == {}
    assert "active segment" in plan.partitions[0].notes[0]


def test_a_wrong_index_of_the_active_segment_is_made_anew(whole: Path) -> None:
    path = whole / "f-t-0" / f"{BASES[-1]:020d}.timeindex"
    path.write_bytes(b"\1" * path.stat().st_size)
    plan = planned(whole, "index=regenerate")
    assert changes(plan) == {path.name: ("regenerate", "KR202")}
    with there_and_back(whole, plan, options()):
        assert rules(checked(whole)) == []


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("size", [7, 31])
def test_a_torn_index_of_the_active_segment_is_made_anew_too(tmp_path: Path, suffix: str, size: int) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    partition.segment(*(builders.data(n, 3, timestamp=builders.NOW_MS + n) for n in range(0, 60, 3)))
    log_dir = directory.write()
    torn = partition.folder / f"{FIRST}.{suffix}"
    right = torn.read_bytes()
    torn.write_bytes(right[:size])
    interval = {"settings": (("index.interval.bytes", "200"),)}
    assert planned(log_dir, "index=truncate", **interval).partitions[0].changes == ()
    plan = planned(log_dir, "index", **interval)
    assert changes(plan) == {torn.name: ("regenerate", "KR205")}
    with there_and_back(log_dir, plan, options()):
        assert torn.read_bytes() == right


def test_damaged_log_keeps_its_indexes_and_the_other_segments_go_on(padded: Path) -> None:
    log = padded / "f-t-0" / f"{FIRST}.log"
    flip(log, 100_016, 0xFF)
    plan = planned(padded, "index=regenerate")
    assert set(changes(plan)) == {f"{480:020d}.index", f"{480:020d}.timeindex"}
    assert any("the log is damaged" in note for note in plan.partitions[0].notes)


@pytest.mark.parametrize("batch", [0, 10, -1])
def test_padding_beside_a_damaged_log_is_still_cut(padded: Path, batch: int) -> None:
    """Or retention would delete what can be saved."""
    log = padded / "f-t-0" / f"{FIRST}.log"
    data = bytearray(log.read_bytes())
    data[naive.parse(bytes(data))[batch].position + 16] = 7  # no magic
    log.write_bytes(data)
    plan = planned(padded)
    mended = changes(plan)
    assert {name for name in mended if name.startswith(f"{480:020d}")} != set()
    if batch != 0:
        assert mended[f"{FIRST}.timeindex"] == ("truncate", "KR201")
    assert apply(plan, options()).exit_code == ExitCode.DONE
    assert "KR802" not in {finding.rule for finding in checked(padded).findings} or batch == 0


def test_an_index_longer_than_2_gib_is_found_unread_and_made_anew(whole: Path) -> None:
    path = whole / "f-t-0" / f"{FIRST}.index"
    right = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(2**31)
    assert rules(checked(whole)) == [("KR207", path.name), ("KR803", path.name)]
    plan = planned(whole)
    assert changes(plan) == {path.name: ("regenerate", "KR207")}
    apply(plan, options())
    assert path.read_bytes() == right


def test_a_transaction_index_that_disagrees_is_found_and_made_anew(tmp_path: Path) -> None:
    log_dir = unpack("compact-2.2.1-before", tmp_path)
    path = next(path for path in sorted((log_dir / "c-none-0").glob("*.txnindex")) if path.stat().st_size)
    right = path.read_bytes()
    path.write_bytes(right[:9] + b"\x77" + right[10:])  # another producer
    found = [one for one in VERBS.found(log_dir, "KR204", settings=()) if one.file]
    assert [one.file for one in found] == [path.name]
    assert "producer" in found[0].evidence
    plan = planned(log_dir, "index=regenerate", settings=(), partitions=(("c-none", 0),))
    assert changes(plan) == {path.name: ("regenerate", "KR204")}
    with there_and_back(log_dir, plan, options()):
        assert path.read_bytes() == right


# -- any byte


def offset_index_serves(log: bytes, index: bytes, base: int) -> bool:
    """Whether each offset is found from the position that a broker's search gives, in a bounded stretch."""
    batches = naive.parse(log)
    starts = {batch.position: batch for batch in batches}
    entries = [
        (
            base + int.from_bytes(index[at : at + 4], "big", signed=True),
            int.from_bytes(index[at + 4 : at + 8], "big", signed=True),
        )
        for at in range(0, len(index) // 8 * 8, 8)
    ]
    if len(index) % 8 or entries != sorted(set(entries)) or any(position < 0 for _, position in entries):
        return False
    if entries and entries[-1][0] > batches[-1].last_offset:
        return False
    for batch in batches:
        for wanted in {batch.base_offset, batch.last_offset}:
            start = max((position for offset, position in entries if offset <= wanted), default=0)
            if start not in starts or start > batch.position:
                return False
    return all(position in starts for _, position in entries)


def time_index_serves(log: bytes, index: bytes, base: int) -> bool:
    """Whether each time is found from the offset that a broker's search gives, and the last entry is the largest."""
    batches = naive.parse(log)
    entries = [
        (
            int.from_bytes(index[at : at + 8], "big", signed=True),
            base + int.from_bytes(index[at + 8 : at + 12], "big", signed=True),
        )
        for at in range(0, len(index) // 12 * 12, 12)
    ]
    largest = max(batch.max_timestamp for batch in batches)
    if len(index) % 12 or not entries or entries[-1][0] != largest:
        return False
    if [entry[0] for entry in entries] != sorted({entry[0] for entry in entries}):
        return False
    for wanted in {batch.max_timestamp for batch in batches} | {entry[0] for entry in entries}:
        first = next((batch for batch in batches if batch.max_timestamp >= wanted), None)
        start = max((offset for timestamp, offset in entries if timestamp <= wanted), default=base)
        found = next(
            (batch for batch in batches if batch.last_offset >= start and batch.max_timestamp >= wanted), None
        )
        if first != found:
            return False
    return True


@st.composite
def spoilt(draw: st.DrawFn, right: bytes) -> bytes:
    """A byte or a word is another one, the end is missing, or something stands behind it."""
    place = draw(st.integers(0, len(right) - 1))
    more = draw(st.binary(min_size=1, max_size=30) | st.integers(1, 200).map(bytes))
    byte, word = more[:1], more[:8]
    ways = (
        right[:place] + byte + right[place + 1 :],
        right[:place] + word + right[place + len(word) :],
        right[:place],
        right + more,
    )
    return draw(st.sampled_from(ways))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One segment to spoil, and an active one behind it."""
    log_dir = unpack("timeindex-ok-2.2.1", tmp_path_factory.mktemp("spoil"))
    for path in (log_dir / "f-t-0").iterdir():
        if path.name[:20].isdigit() and int(path.name[:20]) not in BASES[-2:]:
            path.unlink()
    return log_dir


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "serves"), [(".index", offset_index_serves), (".timeindex", time_index_serves)]
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_spoiled_byte_of_an_index_is_found_or_harmless(
    shared: Path, suffix: str, serves: object, data: st.DataObject
) -> None:
    base = BASES[-2]
    path = shared / "f-t-0" / f"{base:020d}{suffix}"
    right = path.read_bytes()
    spoiled = data.draw(spoilt(right))
    try:
        path.write_bytes(spoiled)
        found = [finding for finding in checked(shared).findings if finding.file == path.name]
        log = path.with_suffix(".log").read_bytes()
        assert found or serves(log, spoiled, base)  # type: ignore[operator]
    finally:
        path.write_bytes(right)


def test_rewritten_segments_get_fresh_indexes_and_only_the_others_are_replaced(tmp_path: Path) -> None:
    """A padded index beside a segment that marker compaction rewrites is moot."""
    bloat = scene(tmp_path)
    moot = bloat.path / "__consumer_offsets-0" / f"{FIRST}.timeindex"
    other = bloat.path / "__consumer_offsets-1" / f"{FIRST}.timeindex"
    for path in (moot, other):
        path.write_bytes(path.read_bytes() + bytes(1200))
    before = tree(bloat.path)
    plan = bloat.plan(fixes=("index", "markers"), partitions=(("__consumer_offsets", 0),))
    assert {type(change) for each in plan.partitions for change in each.changes} == {RewriteSegments}
    index_only = bloat.plan(fixes=("index",), partitions=(("__consumer_offsets", 1),))
    assert changes(index_only) == {other.name: ("truncate", "KR201")}
    for each in (plan, index_only):
        assert bloat.apply(each).exit_code == ExitCode.DONE
        assert verify_plan(each, bloat.options()).problems == ()
    for each in (index_only, plan):
        assert bloat.undo(each).exit_code == ExitCode.DONE
    assert tree(bloat.path) == before


MARKERS = Inline(
    now_ms=builders.NOW_MS, delete_horizon=str(builders.NOW_MS), only_replica=("*",), settings=()
)


def aborted_over_a_marker(root: Path) -> Path:
    """Two records of a transaction that was aborted, and between them a marker that goes."""
    directory = builders.LogDir(root)
    partition = directory.partition("__consumer_offsets")
    old = builders.NOW_MS - 10 * DAY_MS
    first = builders.data(0, pid=7, txn=True, timestamp=old)
    second = builders.data(2, pid=7, sequence=1, txn=True, timestamp=old)
    goes = builders.commit(1, pid=9, timestamp=old)
    partition.segment(
        first, goes, second, builders.abort(3, pid=7, timestamp=old), builders.data(4), mtime_ms=old
    )
    partition.segment(builders.data(5))
    return directory.write() / "__consumer_offsets-0"


@pytest.mark.parametrize(
    "entry", [(7, 2, 3, 4), (7, 0, 3, 5), None], ids=["begins later", "stable later", "no file"]
)
def test_markers_stay_until_a_transaction_index_that_is_not_true_is_mended(
    tmp_path: Path, entry: tuple[int, int, int, int] | None
) -> None:
    folder = aborted_over_a_marker(tmp_path / "logs")
    path, log_dir = folder / f"{FIRST}.txnindex", folder.parent
    right = path.read_bytes()
    path.unlink()
    if entry:
        path.write_bytes(struct.pack(">hqqqq", 0, *entry))
    [alone] = MARKERS.planned(log_dir, fixes=("markers",)).partitions
    assert (alone.code, alone.changes) == ("txnindex-disagrees", ())
    assert "--fix index=regenerate" in str(alone.next_command)
    mended = MARKERS.planned(log_dir, fixes=("index=regenerate", "markers"))
    assert changes(mended) == {path.name: ("regenerate", "KR204")}
    with there_and_back(log_dir, mended, MARKERS.options()):
        assert path.read_bytes() == right
        after = MARKERS.planned(log_dir, fixes=("markers",))
        assert [type(change) for change in after.partitions[0].changes] == [RewriteSegments]


@pytest.mark.parametrize("clean", [False, True])
def test_markers_go_up_to_the_end_that_a_start_finds_and_not_where_a_damaged_batch_lies_below_it(
    clean: bool, tmp_path: Path
) -> None:
    """An entry behind the damage keeps no marker: an unclean start cuts it. After a clean stop the batch counts."""
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("__consumer_offsets")
    old = builders.NOW_MS - 10 * DAY_MS
    partition.segment(builders.commit(0, pid=9, timestamp=old), builders.data(1), mtime_ms=old)
    partition.segment(builders.data(2), builders.data(3, pid=7, txn=True), builders.abort(4, pid=7))
    log_dir = directory.write(clean_stop=clean)
    flip(partition.folder / f"{2:020d}.log", -1)
    [part] = MARKERS.planned(log_dir, fixes=("markers",), broker_version="3.9.2").partitions
    assert [type(change) for change in part.changes] == ([] if clean else [RewriteSegments]), part.why
    assert (part.code, "--fix markers,tail" in part.next_command) == (
        ("log-end", True) if clean else ("", False)
    )


def test_a_transaction_index_above_rewritten_segments_is_made_of_the_log_as_it_was_whenever_apply_was_stopped(
    tmp_path: Path,
) -> None:
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("__consumer_offsets")
    old = builders.NOW_MS - 10 * DAY_MS
    goes = builders.emptied(0, 2, pid=7, timestamp=old), builders.commit(3, pid=9, timestamp=old)
    partition.segment(*goes, builders.data(4, timestamp=old), mtime_ms=old)
    partition.segment(builders.data(5, pid=7, sequence=3, txn=True), builders.abort(6, pid=7))
    log_dir = directory.write()
    path = partition.folder / f"{5:020d}.txnindex"
    right = path.read_bytes()
    path.unlink()
    options = MARKERS.options()
    for stop in each_stop():
        plan = MARKERS.planned(log_dir, fixes=("index=regenerate", "markers"))
        assert {type(change) for change in plan.partitions[0].changes} == {ReplaceFile, RewriteSegments}
        with stop as disk:
            apply(plan, options, disk=disk)
        report = apply(plan, options)
        assert report.exit_code == ExitCode.DONE, (stop.number, report.results)
        assert path.read_bytes() == right
        assert undo(plan, options).exit_code == ExitCode.DONE


@pytest.mark.parametrize(("recorded", "goes"), [(4, False), (3, True)])
def test_an_entry_of_a_marker_in_a_lost_tail_stays(tmp_path: Path, recorded: int, goes: bool) -> None:
    """The log ends before the marker that it names: copied back, the tail still needs it."""
    directory = builders.LogDir(tmp_path / "logs")
    batches = builders.data(0, 3, pid=7, txn=True), builders.abort(3, pid=7)
    partition = directory.partition("t").segment(*batches)
    log_dir = directory.write()
    log = partition.folder / f"{FIRST}.log"
    log.write_bytes(log.read_bytes()[: len(batches[0].raw)])
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_text(f"0\n1\nt 0 {recorded}\n")
    [plan] = planned(log_dir, "index=regenerate").partitions
    assert (f"{FIRST}.txnindex" in {change.name for change in plan.changes}) is goes  # type: ignore[union-attr]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_log_however_spoiled_stops_the_look_at_its_indexes(shared: Path, data: st.DataObject) -> None:
    """Cut inside a batch, zero tail, wrong magic, a declared size past the end: the others go on."""
    path = shared / "f-t-0" / f"{BASES[-2]:020d}.log"
    right = path.read_bytes()
    spoiled = data.draw(spoilt(right))
    try:
        path.write_bytes(spoiled)
        report = checked(shared)
        plan = planned(shared, "index=regenerate")
    finally:
        path.write_bytes(right)
    # a log that ends between two batches misses offsets (KR311): said of the partition, and no damage
    told = [finding for finding in report.findings if finding.rule != "KR311"]
    files = {finding.file for finding in told if finding.rule[:3] in ("KR2", "KR3")}
    assert files <= {path.with_suffix(suffix).name for suffix in (".log", ".index", ".timeindex")}
    damaged = any(finding.rule.startswith("KR3") for finding in told)
    assert not (damaged and changes(plan))


def test_a_segment_whose_offsets_overflow_its_base_keeps_its_indexes(tmp_path: Path) -> None:
    far = 2**31 + 10
    log_dir = builders.LogDir(tmp_path / "logs")
    log_dir.partition("t").segment(builders.data(far, 3)).segment(builders.data(far + 5, 1))
    log_dir.write()
    folder = tmp_path / "logs" / "t-0"
    (folder / f"{far:020d}.log").rename(folder / f"{FIRST}.log")
    (folder / f"{FIRST}.timeindex").write_bytes(bytes(24))
    for suffix in (".index", ".timeindex", ".txnindex"):
        (folder / f"{far:020d}{suffix}").unlink(missing_ok=True)
    plan = planned(tmp_path / "logs", "index=regenerate")
    assert changes(plan) == {}
    assert "damaged" in plan.partitions[0].notes[0]


def test_both_indexes_of_a_segment_are_made_and_verified_by_one_reading_and_each_is_judged_by_itself(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from krepair.rewrite.indexes import segment as indexes

    folder = min(path.parent for path in whole.rglob("*.timeindex"))
    wrong = [folder / f"{base:020d}{suffix}" for base in BASES[:2] for suffix in (".index", ".timeindex")]
    right = [path.read_bytes() for path in wrong]
    assert all(right)
    for path in wrong:
        path.write_bytes(b"\xff" * 24)
    plan = planned(whole, "index=regenerate")
    assert set(changes(plan)) >= {path.name for path in wrong}
    readings: list[tuple[str, ...]] = []
    real = indexes._contradictions_of_log

    def noting(item: Any, contents: Any, found: Any) -> dict[str, str]:
        readings.append(tuple(sorted(contents)))
        return real(item, contents, found)

    monkeypatch.setattr(indexes, "_contradictions_of_log", noting)
    report = apply(plan, options())
    assert report.exit_code == ExitCode.DONE
    assert readings == [(".index", ".timeindex")] * 2
    readings.clear()
    assert verify_plan(plan, options()).problems == ()
    assert readings == [(".index", ".timeindex")] * 2
    wrong[0].write_bytes(right[0][:-8] + b"\xff" * 8)
    told = " ".join(problem.text for problem in verify_plan(plan, options()).problems)
    assert wrong[0].name in told
    assert wrong[1].name not in told
