"""Pending swaps and splits before Kafka's own loader: at every instant of completing one and of taking that back."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from krepair.commit.reports import ApplyReport
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import CompleteSwap, Plan
from tests.builders import NOW_MS, LogDir, Record, data
from tests.commit.scene import UnsyncedDisk, tree
from tests.commit.states_disk import StatesDisk, load, verdict, verdicts
from tests.durable.disks import NAME_CHANGING
from tests.lab.jars import LATEST, VERSIONS
from tests.lab.judge import Judge, JudgeError
from tests.ops import pending
from tests.ops.pending import BASE, EXTENSIONS, FOLDER, name, options
from tests.ops.scene import BLOAT, Scene, part
from tests.ops.scene import scene as of_fixture
from tests.ops.scene import tree as everything
from tests.ops.stops import EVERY_CALL, Stop, each_stop

pytestmark = [pytest.mark.broker, pytest.mark.slow]

JudgeOf = Callable[[str], Judge]
PARTITION = "__consumer_offsets-0"
CASES = [pytest.param("fenced", version, id=f"fenced, {version}") for version in VERSIONS] + [
    pytest.param("by version", version, id=f"by version, {version}") for version in VERSIONS
]


def scene(root: Path, order: str, version: str, *, split: bool = False) -> tuple[Options, Plan]:
    """M pending over 100 and 300, with 200 already set aside; without the fence where damage is in reach.

    ``split``: M is in its place and the segments are pending, as when a broker did not finish a split.
    """
    damaged = order != "fenced"
    if split:
        pending.write_split(root, damage_elsewhere=damaged)
    else:
        pending.write(root, deleted=(200,), damage_elsewhere=damaged)
    chosen = options(broker_version="" if order == "fenced" else version, partitions=(("t", 0),))
    plan = make_plan(str(root), chosen)
    assert CompleteSwap in {type(change) for change in part(plan, FOLDER).changes}
    assert plan.commit.fence is (order == "fenced")
    return chosen, plan


@pytest.mark.parametrize(("order", "version"), CASES)
@pytest.mark.parametrize(("split", "served"), [(False, "NEW"), (True, "OLD")], ids=["swap", "split"])
def test_a_broker_started_at_any_instant_of_apply_or_undo_serves_what_it_would_have_served(
    judge: JudgeOf, tmp_path: Path, order: str, version: str, split: bool, served: str
) -> None:
    root = tmp_path / "logs"
    chosen, plan = scene(root, order, version, split=split)
    before = tree(root)
    for verb in (apply, undo):
        disk = StatesDisk(root, tmp_path / verb.__name__)
        assert verb(plan, chosen, disk=disk).exit_code == ExitCode.DONE
        found = verdicts(judge(version), disk)
        assert {state: said for state, said in found.items() if said != served} == {}
        assert len(found) >= 15
    assert before == tree(root)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"gone": (100,)},
        {"gone": (300,)},
        {"gone": (100, 200, 300)},
        {"deleted": (100, 200)},
        {"until": 356},
        {"until": 300},
        {"until": 206, "gone": (200,)},
        {"until": 107},
    ],
    ids=str,
)
def test_apply_ends_with_what_each_broker_makes_of_the_swap_itself(
    judge: JudgeOf, tmp_path: Path, version: str, given: dict[str, Any]
) -> None:
    """Records, transactions, ends and segments; 2.2.1 also makes producer state anew, here it stays as it was."""
    root = pending.write(tmp_path / "logs", **given)
    theirs = load(judge(version), Path(shutil.copytree(root, tmp_path / "copy")))
    chosen = options()
    plan = make_plan(str(root), chosen)
    assert any(isinstance(change, CompleteSwap) for change in part(plan, FOLDER).changes)
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    ours = load(judge(version), root)
    assert theirs.uncommitted == ours.uncommitted
    assert theirs.committed == ours.committed
    assert (theirs.log_start, theirs.log_end, theirs.stable_offset, theirs.segments) == (
        ours.log_start,
        ours.log_end,
        ours.stable_offset,
        ours.segments,
    )
    assert version == "2.2.1" or theirs.producers == ours.producers


@pytest.mark.parametrize("version", VERSIONS)
def test_a_swap_that_a_cleaned_makes_void_is_thrown_away_by_every_broker_and_by_apply(
    judge: JudgeOf, tmp_path: Path, version: str
) -> None:
    """Kafka's own crash between its first two renames: the records of before stay readable."""
    root = pending.write(tmp_path / "logs")
    for extension in EXTENSIONS[1:]:
        (root / FOLDER / name(BASE, f"{extension}.swap")).rename(
            root / FOLDER / name(BASE, f"{extension}.cleaned")
        )
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    theirs = load(judge(version), copy)
    chosen = options()
    assert apply(make_plan(str(root), chosen), chosen).exit_code == ExitCode.DONE
    ours = load(judge(version), root)
    assert verdict(ours) == "OLD"
    assert theirs.uncommitted == ours.uncommitted


def test_versions_part_on_a_damaged_swap_which_is_why_it_is_left_alone(
    judge: JudgeOf, tmp_path: Path
) -> None:
    root = pending.write(tmp_path / "logs")
    swap = root / FOLDER / name(BASE, ".log.swap")
    data = bytearray(swap.read_bytes())
    data[7000] ^= 1
    swap.write_bytes(data)
    assert part(make_plan(str(root), options()), FOLDER).code == "leftovers"
    sizes = {}
    for version in ("2.2.1", "3.9.2"):
        copy = Path(shutil.copytree(root, tmp_path / version))
        with contextlib.suppress(JudgeError):  # the newer one then fails to read it
            load(judge(version), copy)
        sizes[version] = (copy / FOLDER / name(BASE)).stat().st_size
    assert sizes == {"2.2.1": 6913, "3.9.2": 14196}


def test_an_index_swap_alone_misleads_new_brokers_and_gone_all_serve_every_record(
    judge: JudgeOf, tmp_path: Path
) -> None:
    """M's indexes beside segment 100: since 3.0 they are renamed over the good ones, unread."""
    root = pending.write(tmp_path / "logs", without=(".log", ".txnindex"))
    spoilt = Path(shutil.copytree(root, tmp_path / "spoilt"))
    assert verdict(load(judge("3.9.2"), spoilt)) != "OLD"
    chosen = options()
    assert apply(make_plan(str(root), chosen), chosen).exit_code == ExitCode.DONE
    for version in VERSIONS:
        assert verdict(load(judge(version), Path(shutil.copytree(root, tmp_path / version)))) == "OLD"


# -- krepair stopped, then a broker, then krepair ------------------------------------------------------------
def stops_of(version: str) -> Iterator[Stop]:
    """Every call with ``KREPAIR_EVERY_CALL=1``; in the gate the versions take turns, each at every third one."""
    first, step = (1, 1) if EVERY_CALL else (1 + VERSIONS.index(version) % 3, 3)
    return each_stop(kinds=NAME_CHANGING, first=first, step=step)


@pytest.mark.parametrize(("order", "version"), CASES)
@pytest.mark.parametrize("stopped", [apply, undo])
def test_after_a_crash_and_a_broker_at_any_call_the_next_verb_ends_with_the_new_records(
    judge: JudgeOf, tmp_path: Path, order: str, version: str, stopped: Callable[..., ApplyReport]
) -> None:
    """A broker that was killed after loading: what it did to the folder stays, the marker is gone."""
    ended: Counter[int] = Counter()
    for stop in stops_of(version):
        stops = stop.number
        root = tmp_path / str(stops)
        chosen, plan = scene(root, order, version)
        if stopped is undo:
            apply(plan, chosen, disk=UnsyncedDisk())
        with stop as disk:
            stopped(plan, chosen, disk=disk)
        if not stop.happened:
            break
        assert verdict(load(judge(version), root)) == "NEW", stops
        (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
        # With an odd number an apply is taken back instead: what the broker finished stays, and is read.
        then = undo if stops % 2 else stopped
        report = then(plan, chosen, disk=UnsyncedDisk())
        ended[int(report.exit_code)] += 1
        assert verdict(load(judge(version), root)) == "NEW", (stops, report)
        shutil.rmtree(root)
    # Refused: nothing had been kept yet, or the undo was over but for its folder; and the broker finished what was
    # pending, so there is nothing to put back.
    assert set(ended) <= {ExitCode.DONE, ExitCode.STALE_PLAN, ExitCode.PARTLY, ExitCode.REFUSED}
    assert stops > 25
    assert stopped is apply or ended[ExitCode.REFUSED] <= 2


# -- a real ``__consumer_offsets`` whose cleaner, Kafka's own, was stopped in the middle of its swap -----------
def bases(folder: Path) -> list[int]:
    return sorted(int(path.name.partition(".")[0]) for path in folder.glob("*.log"))


def stop_in_the_middle(here: Scene, work: Path, judge: Judge) -> tuple[int, int]:
    """Have the cleaner of that version make a segment of several, and put it beside them as its crash would."""
    folder = here.path / PARTITION
    cleaned = Path(shutil.copytree(folder, work / PARTITION))
    larger = here.settings | {"segment.bytes": "400000"}
    judge.clean(cleaned, settings=larger, now_ms=here.now_ms)
    before, after = bases(folder), bases(cleaned)
    at = next(
        place
        for place, base in enumerate(after[:-1])
        if sum(base <= o < after[place + 1] for o in before) > 1
    )
    base, end = after[at], after[at + 1]
    for extension in EXTENSIONS:
        source = cleaned / name(base, extension)
        if source.exists():
            shutil.copy2(source, folder / (name(base, extension) + ".swap"))
    first = next(each for each in before if base < each < end)
    for extension in EXTENSIONS:  # the first that it set aside
        original = folder / name(first, extension)
        if original.exists():
            original.rename(f"{original}.deleted")
    return base, sum(base <= each < end for each in before) - 1


@pytest.mark.parametrize("cleaner", ["2.2.1", "3.9.2"])
def test_the_swap_of_a_real_cleaner_is_completed_to_what_every_broker_serves(
    judge: JudgeOf, tmp_path: Path, cleaner: str
) -> None:
    here = of_fixture(tmp_path, BLOAT)
    base, replaced = stop_in_the_middle(here, tmp_path / "work", judge(cleaner))
    theirs = {}
    for version in VERSIONS:
        copy = Path(shutil.copytree(here.path / PARTITION, tmp_path / version / PARTITION))
        theirs[version] = judge(version).load(copy, settings=here.settings, now_ms=here.now_ms)
    before = everything(here.path)
    plan = here.plan(fixes=("leftovers",))
    # What was set aside goes first: a start that is killed behind the swap has nothing of it to delete.
    (*removed, change) = part(plan, PARTITION).changes
    assert isinstance(change, CompleteSwap)
    assert (change.base_offset, len(change.replaces)) == (base, replaced)
    assert {(one.rule, one.name.endswith(".deleted")) for one in removed} == {("KR601", True)}  # type: ignore[union-attr]
    assert here.apply(plan).exit_code == ExitCode.DONE
    assert not verify_plan(plan, here.options()).problems
    for version in VERSIONS:
        copy = Path(shutil.copytree(here.path / PARTITION, tmp_path / "ours" / version / PARTITION))
        ours = judge(version).load(copy, settings=here.settings, now_ms=here.now_ms)
        assert theirs[version].served == ours.served, version
        assert (theirs[version].log_end, theirs[version].stable_offset) == (ours.log_end, ours.stable_offset)
        assert [one.base_offset for one in theirs[version].segments] == [
            one.base_offset for one in ours.segments
        ]
    second = make_plan(str(here.path), here.options())
    assert part(second, PARTITION).code == ""
    assert here.undo(plan).exit_code == ExitCode.DONE
    assert before == everything(here.path)
    assert os.path.isdir(here.path / PARTITION)


# -- a swap whose base offset is not that of the segment that it replaces --------------------------------------
def written(root: Path) -> Path:
    """Segments at 0, 10 and 20; the swap at 19 holds the last record of the second one too, which has lost it."""
    directory = LogDir(root)
    partition = directory.partition("t")
    records = [Record(b"k%d" % number, b"v") for number in range(10)]
    last = data(19, [Record(b"k9", b"v")])
    partition.segment(data(0, records))
    partition.segment(data(10, records[:9]))
    partition.segment(data(20, records))
    directory.write(clean_stop=False)
    rest = (partition.folder / f"{20:020d}.log").read_bytes()
    (partition.folder / f"{19:020d}.log.swap").write_bytes(last.raw + rest)
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    return root


@pytest.mark.parametrize("version", ["2.2.1", LATEST])
def test_the_forecast_names_the_segments_that_a_start_leaves(
    tmp_path: Path, judge: Callable[[str], Judge], version: str
) -> None:
    root = written(tmp_path / "logs")
    given = Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)
    (line,) = check([str(root)], given).log_dirs[0].forecast
    copy = tmp_path / "start" / "t-0"
    shutil.copytree(root / "t-0", copy)
    found = judge(version).start(copy, clean=False, recovery_point=0, log_start=0, now_ms=NOW_MS)
    there = tuple((one.base_offset, one.bytes) for one in found.segments)
    assert line.segments == tuple(base for base, _ in there), line.text
    assert line.log_bytes in ((), there), line.text
    assert line.bytes_read == sum(size for _, size in there)
