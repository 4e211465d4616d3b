"""A wrong replica is set aside with a proof, stopped at every call, taken back; without a proof nothing is touched."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from typer.testing import CliRunner

from krepair.cli.main import app
from krepair.errors import ExitCode, KrepairError, RefusedError, UnreadableError, UsageError
from krepair.fixes import refetch as refetch_module
from krepair.formats.checkpoint import OffsetEntry, decode_offsets, encode_offsets
from krepair.logdir import unclean as unclean_module
from krepair.logdir.cluster import ClusterView
from krepair.logdir.metadata_log import BrokerRegistration
from krepair.logdir.view import read_log_dir
from krepair.ops import compare as compare_module
from krepair.ops import judged as judged_module
from krepair.ops import proof as proof_module
from krepair.ops.apply import apply
from krepair.ops.by_id import purge_by_id
from krepair.ops.facts import facts
from krepair.ops.judged import Judgement, judge
from krepair.ops.own_dirs import other_dirs
from krepair.ops.plan import make_plan
from krepair.ops.preview import make_preview
from krepair.ops.proof import check_again
from krepair.ops.purge import purge
from krepair.ops.rebuild import rebuild
from krepair.ops.reports import ApplyReport
from krepair.ops.sides import Side
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Engine, Options
from krepair.plan.figures import plan_peak_bytes
from krepair.plan.model import ChangeLines, Plan, RefetchProof, ReplaceFile, SetAside
from krepair.plan.planfile import seal
from krepair.plan.review import review
from krepair.plan.view import time_text
from krepair.rules.checkpoint_lines import ChangedLine
from tests import builders
from tests.durable.disks import Call, PassingDisk, SimulatedCrash, StoppingDisk
from tests.journal.scene import UnsyncedDisk
from tests.ops.scene import tree
from tests.ops.stops import each_stop
from tests.runbooks.page import Shell, commands_of

CHECKPOINTS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
FIRSTS = range(1, 8) if os.environ.get("KREPAIR_EVERY_STATE") == "1" else (2, 5)
"""The first call at which a case stops; from there on it is every seventh. The seven together stop at every call."""
HOUR_MS = 3_600_000
TEXT = (
    "Topic: t\tPartitionCount: 2\tReplicationFactor: 3\tConfigs: \n"
    "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2\n"
    "\tTopic: t\tPartition: 1\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\n"
)
ISR_OF_ALL = TEXT.replace("Isr: 1,2\n", "Isr: 1,2,3\n", 1)
RIGHT = Judgement(right=(1, 2), wrong=True, verdict="tombstone-missed on 3")


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What compare would say."""

    def said(*_: object) -> Mapping[tuple[str, int], Judgement]:
        return {("t", number): RIGHT for number in (0, 1)}

    monkeypatch.setattr(proof_module, "judge", said)


def log_dir(
    root: Path, *, segments: int = 3, old: bool = True, broker: int = 3, topic: str = "t", **more: int
) -> Path:
    made = builders.LogDir(root)
    for number in (0, 1):
        partition = made.partition(topic, number)
        for place in range(segments):
            records = [builders.Record(b"k%d" % place, b"v")]
            partition.segment(builders.data(place * 10, records, **more))  # type: ignore[arg-type]
    offsets = dict.fromkeys(((topic, 0), (topic, 1)), 3)
    made.write(clean_stop=True)
    for name in CHECKPOINTS:
        put_lines(root, name, offsets)
    (root / "meta.properties").write_text(f"version=0\nbroker.id={broker}\ncluster.id=c\n")
    for path in root.rglob("*") if old else ():
        make_old(path)
    if broker != 3:  # it goes on running
        (root / CHECKPOINTS[-1]).touch()
    return root


def make_old(path: Path) -> None:
    past = time.time_ns() - HOUR_MS * 1_000_000
    os.utime(path, ns=(past, past))


def put_lines(root: Path, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    entries = tuple(OffsetEntry(topic, number, offset) for (topic, number), offset in offsets.items())
    (root / name).write_bytes(encode_offsets(entries))


def lines_of(root: Path, name: str) -> dict[tuple[str, int], int]:
    found = decode_offsets((root / name).read_bytes())
    assert not found.damage
    return {(one.topic, one.partition): one.offset for one in found.entries}


def kept_in(plan: Plan) -> set[str]:
    """Names of krepair's own sub-folders of ``t-0``."""
    return {f"krepair~{plan.plan_id}", f"krepair~{plan.plan_id}~root"}


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def options(tmp_path: Path, **changed: object) -> Options:
    if not (tmp_path / "b1").exists():
        log_dir(tmp_path / "b1", broker=1)
    given: dict[str, object] = {
        "fixes": ("refetch",),
        "partitions": (("t", 0),),
        "engine": Engine.INLINE,
        "replicas": (f"1={tmp_path / 'b1'}",),
        "cluster": write(tmp_path / "described", TEXT),
        "cluster_as_of": now_ms(),
        "cluster_configs": (write(tmp_path / "server.properties", "broker.id=3\nlog.dirs=/var/lib/kafka\n"),),
        "now_ms": now_ms(),
        "broker_version": "2.8.2",
    }
    return Options(**{**given, **changed})  # type: ignore[arg-type]


@pytest.fixture
def scene(tmp_path: Path, judged: None) -> tuple[Path, Options, Plan]:
    root, chosen = log_dir(tmp_path / "b3"), options(tmp_path)
    return root, chosen, make_plan(str(root), chosen)


def test_the_folder_is_left_empty_but_for_what_is_kept_and_everything_comes_back(
    scene: tuple[Path, Options, Plan],
) -> None:
    root, chosen, plan = scene
    before = tree(root, private=False)
    assert apply(plan, chosen).exit_code is ExitCode.DONE
    assert {path.name for path in (root / "t-0").iterdir()} == kept_in(plan)
    assert verify_plan(plan, chosen).exit_code is ExitCode.DONE
    untouched = {*CHECKPOINTS, ".lock"}
    after = tree(root, private=False)
    assert {
        path: row for path, row in after.items() if not path.startswith("t-0") and path not in untouched
    } == {path: row for path, row in before.items() if not path.startswith("t-0") and path not in untouched}
    for name in CHECKPOINTS:
        assert lines_of(root, name) == {("t", 1): 3}
    assert undo(plan, chosen).exit_code is ExitCode.DONE
    after = tree(root, private=False)
    after.pop(".lock", None)
    before.pop(".lock", None)
    assert after == before


def test_a_damaged_replica_is_fetched_anew_from_one_that_compare_calls_right(tmp_path: Path) -> None:
    root, chosen = log_dir(tmp_path / "b3"), options(tmp_path)
    log = root / "t-0" / f"{10:020d}.log"
    past = log.stat().st_mtime
    log.write_bytes(log.read_bytes()[:-3] + b"abc")
    os.utime(log, (past, past))
    plan = make_plan(str(root), chosen)
    assert apply(plan, chosen).exit_code is ExitCode.DONE
    proof = next(one.proof for one in plan.partitions if one.folder == "t-0")
    assert isinstance(proof, RefetchProof)
    assert (proof.right, proof.wrong) == ((1,), True)
    assert "corrupt on 3" in proof.verdict


def test_partition_metadata_stays_where_a_kraft_broker_needs_it(tmp_path: Path, judged: None) -> None:
    root = log_dir(tmp_path / "b3")
    (root / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    past = time.time() - 3600
    os.utime(root / "t-0" / "partition.metadata", (past, past))
    chosen = options(tmp_path)
    plan = make_plan(str(root), chosen)
    assert apply(plan, chosen).exit_code is ExitCode.DONE
    assert {path.name for path in (root / "t-0").iterdir()} == kept_in(plan) | {"partition.metadata"}


def test_the_reviewer_reads_what_the_proof_is(scene: tuple[Path, Options, Plan]) -> None:
    _, _, plan = scene
    notes = " ".join(next(one for one in plan.partitions if one.folder == "t-0").notes)
    assert "broker 1 leads, in sync are 1, 2" in notes
    assert "vouches that it is of kafka-topics.sh --bootstrap-server" in notes
    assert "tombstone-missed on 3" in notes


def test_the_newest_segment_goes_first_and_the_epochs_last(scene: tuple[Path, Options, Plan]) -> None:
    _, _, plan = scene
    changes = next(one for one in plan.partitions if one.folder == "t-0").changes
    bases = [change.base_offset for change in changes if isinstance(change, SetAside)]
    assert bases == sorted(bases, reverse=True)
    last = changes[-1]
    assert isinstance(last, ReplaceFile)
    assert last.name == "leader-epoch-checkpoint"


def test_undo_refuses_once_the_broker_has_fetched(scene: tuple[Path, Options, Plan]) -> None:
    root, chosen, plan = scene
    apply(plan, chosen)
    for name in (f"{0:020d}.log", "leader-epoch-checkpoint"):
        (root / "t-0" / name).write_bytes(b"new")
    there = tree(root, private=False)
    report = undo(plan, chosen)
    assert report.exit_code is ExitCode.STALE_PLAN
    assert tree(root, private=False) == there


def planned(
    tmp_path: Path, number: int, *, segments: int
) -> tuple[Path, Options, Plan, dict[str, tuple[object, ...]]]:
    """A log directory of its own for one stop, how and what is planned for it, and its files before."""
    root, chosen = log_dir(tmp_path / f"b3-{number}", segments=segments), options(tmp_path)
    return root, chosen, make_plan(str(root), chosen), tree(root, private=False)


@pytest.mark.parametrize("first", FIRSTS)
def test_stopped_at_any_call_it_goes_on_or_back(first: int, tmp_path: Path, judged: None) -> None:
    for stop in each_stop(first=first, step=7):
        stops = stop.number
        root, chosen, plan, before = planned(tmp_path, stops, segments=2)
        with stop as disk:
            apply(plan, chosen, disk=disk)
        if stop.happened:
            check_what_a_start_would_meet(root)
            if (stops - first) // 7 % 2:
                assert apply(plan, chosen).exit_code is ExitCode.DONE
                assert not [*(root / "t-0").glob("*.log")]
                assert not any(("t", 0) in lines_of(root, name) for name in CHECKPOINTS)
            undo(plan, chosen)
            assert without_lock(tree(root, private=False)) == without_lock(before), stops
    assert stops > 20


def check_what_a_start_would_meet(root: Path) -> None:
    """The log's beginning without a gap; and no offset of the old log once any of it is gone."""
    names = {path.name for path in (root / "t-0").glob("*.log")}
    assert names in ({f"{0:020d}.log", f"{10:020d}.log"}, {f"{0:020d}.log"}, set())
    for name in CHECKPOINTS:
        found = lines_of(root, name)
        assert found[("t", 1)] == 3
        assert len(names) == 2 or ("t", 0) not in found


def without_lock(rows: Mapping[str, object]) -> dict[str, object]:
    return {path: row for path, row in rows.items() if path != ".lock"}


@pytest.mark.parametrize("first", FIRSTS)
def test_an_undo_that_is_stopped_at_any_call_goes_back_as_a_whole(
    first: int, tmp_path: Path, judged: None
) -> None:
    for stop in each_stop(first=first, step=7):
        stops = stop.number
        root, chosen, plan, before = planned(tmp_path, stops, segments=2)
        assert apply(plan, chosen).exit_code is ExitCode.DONE
        with stop as disk:
            undo(plan, chosen, disk=disk)
        if stop.happened:
            check_what_a_start_would_meet(root)
            assert undo(plan, chosen).exit_code is ExitCode.DONE
            assert without_lock(tree(root, private=False)) == without_lock(before), stops
    assert stops > 20


@pytest.mark.parametrize("verb", [apply, undo])
def test_what_a_broker_fetched_between_two_runs_is_not_covered_by_what_is_kept(
    verb: Callable[..., ApplyReport], tmp_path: Path, judged: None
) -> None:
    """Stopped while some segments are out, a follower goes on with the rest; its offsets are those of the kept ones."""
    met = set()
    for stop in each_stop(first=3, step=4):
        root, chosen, plan, _ = planned(tmp_path, stop.number, segments=3)
        if verb is undo:
            apply(plan, chosen, disk=UnsyncedDisk())
        with stop as disk:
            verb(plan, chosen, disk=disk)
        logs = sorted((root / "t-0").glob("*.log"))
        if len(logs) in {0, 3}:
            continue
        met.add(len(logs))
        with logs[-1].open("ab") as log:
            log.write(b"".join(builders.data(offset, leader_epoch=3).raw for offset in (21, 22, 23)))
        there = {path.name: path.read_bytes() for path in logs}
        report = undo(plan, chosen, disk=UnsyncedDisk())
        assert report.exit_code in {ExitCode.PARTLY, ExitCode.STALE_PLAN}, stop.number
        assert {path.name: path.read_bytes() for path in (root / "t-0").glob("*.log")} == there, stop.number
    assert met == {1, 2}


@pytest.mark.parametrize("name", CHECKPOINTS)
class TestLinesOfTheRoot:
    def test_where_there_is_no_line_the_file_stays(self, name: str, tmp_path: Path, judged: None) -> None:
        root, chosen = log_dir(tmp_path / "b3"), options(tmp_path)
        put_lines(root, name, {("t", 1): 3})
        make_old(root / name)
        there = (root / name).stat()
        plan = make_plan(str(root), chosen)
        assert plan.root is not None
        assert name not in [change.name for change in plan.root.changes]
        assert apply(plan, chosen).exit_code is ExitCode.DONE
        assert (root / name).stat() == there

    @pytest.mark.parametrize("data", [b"0\n2\nt 0", b"0\n2\nt 0 3\nt 0 1\n", b"x"])
    def test_a_damaged_file_is_mended_first(
        self, name: str, data: bytes, tmp_path: Path, judged: None
    ) -> None:
        root, chosen = log_dir(tmp_path / "b3"), options(tmp_path)
        (root / name).write_bytes(data)
        make_old(root / name)
        with pytest.raises(RefusedError, match=f"{name} is damaged.*--fix checkpoints"):
            make_plan(str(root), chosen)

    def test_a_line_that_is_another_one_by_now_leaves_the_log_as_it_is(
        self, name: str, scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        put_lines(root, name, {("t", 0): 2, ("t", 1): 3})
        make_old(root / name)
        there = tree(root, private=False)
        assert apply(plan, chosen).exit_code is ExitCode.STALE_PLAN
        assert without_lock(tree(root, private=False)) == without_lock(there)

    def test_the_other_lines_are_those_on_the_disk(
        self, name: str, scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        put_lines(root, name, {("t", 0): 3, ("t", 1): 2})
        make_old(root / name)
        assert apply(plan, chosen).exit_code is ExitCode.DONE
        assert lines_of(root, name) == {("t", 1): 2}
        assert verify_plan(plan, chosen).exit_code is ExitCode.DONE

    def test_a_line_that_came_back_is_a_problem_for_verify(
        self, name: str, scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        assert apply(plan, chosen).exit_code is ExitCode.DONE
        put_lines(root, name, {("t", 0): 3, ("t", 1): 3})
        report = verify_plan(plan, chosen)
        assert report.exit_code is ExitCode.FOUND
        assert name in str(report.problems)

    @pytest.mark.parametrize("data", [b"0\n1\nt 1 2\n", b"0\n0\n", b"0\n2\nt 1 3\nu 0 1\n"], ids=str)
    def test_another_line_that_changed_is_a_problem_for_verify(
        self, name: str, data: bytes, scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        assert apply(plan, chosen).exit_code is ExitCode.DONE
        assert (root / name).read_bytes() == b"0\n1\nt 1 3\n"
        (root / name).write_bytes(data)
        report = verify_plan(plan, chosen)
        assert report.exit_code is ExitCode.FOUND
        assert "other lines than those of the plan changed" in str(report.problems)

    @pytest.mark.parametrize(
        "rotten",
        [b"", b"\xff" * 20, b"0\n2\nt 0\nx\n", b"0\n1\nt 0 " + b"9" * 5000],
        ids=["empty", "no text", "torn", "a number of 5,000 digits"],
    )
    def test_a_kept_file_that_rotted_is_a_problem_for_verify(
        self, name: str, rotten: bytes, scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        assert apply(plan, chosen).exit_code is ExitCode.DONE
        (kept,) = (path for path in root.rglob(f"*{name}") if path.parent != root)
        kept.write_bytes(rotten)
        report = verify_plan(plan, chosen)
        assert report.exit_code is ExitCode.FOUND
        assert name in str(report.problems)

    def test_once_the_broker_has_fetched_undo_leaves_the_lines_as_they_are(
        self, name: str, scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        apply(plan, chosen)
        for new in (f"{0:020d}.log", "leader-epoch-checkpoint"):
            (root / "t-0" / new).write_bytes(b"new")
        assert undo(plan, chosen).exit_code is ExitCode.STALE_PLAN
        assert lines_of(root, name) == {("t", 1): 3}


def test_the_review_takes_only_lines_of_what_is_set_aside(scene: tuple[Path, Options, Plan]) -> None:
    _, _, plan = scene
    assert plan.root is not None
    assert not review(plan)
    first, *others = plan.root.changes
    assert isinstance(first, ChangeLines)
    for line in (
        ChangedLine(topic="t", partition=1, old=3, new=None),
        ChangedLine(topic="t", partition=0, old=3, new=0),
    ):
        changed = replace(plan.root, changes=(replace(first, lines=(line,)), *others))
        found = [one.code for one in review(seal(replace(plan, root=changed)))]
        assert found == ["RV28"]
    left = seal(replace(plan, policy=replace(plan.policy, fixes=("tail",))))
    assert "RV28" in [one.code for one in review(left)]


def test_a_plan_of_the_krepair_before_leaves_the_lines_and_is_carried_out(
    scene: tuple[Path, Options, Plan],
) -> None:
    root, chosen, plan = scene
    before = tree(root, private=False)
    old = replace(plan, root=None)
    old = seal(replace(old, peak_extra_bytes=plan_peak_bytes(old)))
    assert apply(old, chosen).exit_code is ExitCode.DONE
    assert lines_of(root, CHECKPOINTS[0]) == {("t", 0): 3, ("t", 1): 3}
    assert undo(old, chosen).exit_code is ExitCode.DONE
    assert without_lock(tree(root, private=False)) == without_lock(before)


def test_of_two_partitions_each_loses_its_lines(tmp_path: Path, judged: None) -> None:
    root = log_dir(tmp_path / "b3")
    text = write(tmp_path / "both", ISR_OF_ALL.replace("Isr: 1,2,3", "Isr: 1,2"))
    chosen = options(tmp_path, partitions=(("t", 0), ("t", 1)), cluster=text)
    before = tree(root, private=False)
    plan = make_plan(str(root), chosen)
    assert apply(plan, chosen).exit_code is ExitCode.DONE
    assert [lines_of(root, name) for name in CHECKPOINTS] == [{}] * 4
    assert undo(plan, chosen).exit_code is ExitCode.DONE
    assert without_lock(tree(root, private=False)) == without_lock(before)


def test_what_is_the_same_for_all_partitions_is_read_once_however_many_are_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: Counter[str] = Counter()
    calls = (
        (compare_module, "compare"),
        (proof_module, "last_write_ms"),
        (proof_module, "is_kraft"),
        (unclean_module, "read_text"),
        (unclean_module, "read_server_properties"),
        (refetch_module, "_check_lines"),
    )

    def counting(module: ModuleType, name: str) -> None:
        real = getattr(module, name)

        def call(*given: Any) -> Any:
            called[name] += 1
            return real(*given)

        monkeypatch.setattr(module, name, call)

    for module, name in calls:
        counting(module, name)
    text = write(tmp_path / "both", ISR_OF_ALL.replace("Isr: 1,2,3", "Isr: 1,2"))
    found = []
    for numbers in ((0,), (0, 1)):
        root = log_dir(tmp_path / f"b3-{len(numbers)}")
        for number in numbers:
            log = root / f"t-{number}" / f"{10:020d}.log"
            log.write_bytes(log.read_bytes()[:-3] + b"abc")
            make_old(log)
        chosen = options(tmp_path, partitions=tuple(("t", number) for number in numbers), cluster=text)
        called.clear()
        plan = make_plan(str(root), chosen)
        assert sum(bool(one.changes) for one in plan.partitions) == len(numbers)
        assert apply(plan, chosen).exit_code is ExitCode.DONE
        found.append(dict(called))
    assert found[0] == found[1]
    assert found[0].keys() == {name for _, name in calls}


def test_partitions_are_compared_together_with_those_of_the_same_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = read_log_dir(str(log_dir(tmp_path / "b3")))
    seen: list[tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str], ...]]] = []

    def compared(
        _view: object, _broker: object, _sides: object, names: tuple[tuple[str, int], ...], given: Options
    ) -> Any:
        seen.append((names, given.settings))
        return SimpleNamespace(partitions=())

    monkeypatch.setattr(judged_module, "compared", compared)
    policies = {"a": "compact", "b": "delete", "c": "compact"}
    names = [("a", 0), ("b", 0), ("none", 0), ("c", 1), ("a", 1)]
    key = "cleanup.policy"
    judge(view, 3, (), names, Options(), policies)
    assert seen == [
        ((("a", 0), ("c", 1), ("a", 1)), ((key, "compact"),)),
        ((("b", 0),), ((key, "delete"),)),
        ((("none", 0),), ()),
    ]
    seen.clear()
    judge(view, 3, (), names, Options(settings=((key, "delete"),)), policies)
    assert seen == [(tuple(names), ((key, "delete"),))], "what was typed goes before it"


def test_a_checkpoint_that_cannot_be_written_leaves_the_logs_as_they_are(
    scene: tuple[Path, Options, Plan],
) -> None:
    root, chosen, plan = scene

    class Full(PassingDisk):
        def _before(self, call: Call) -> None:
            if call.kind == "create" and call.path.endswith("offset-checkpoint"):
                raise OSError(errno.EIO, os.strerror(errno.EIO), call.path)

    there = tree(root, private=False)
    report = apply(plan, chosen, disk=Full(UnsyncedDisk()))
    assert report.exit_code is not ExitCode.DONE
    assert "have to go first" in str(report.results)
    assert without_lock(tree(root, private=False)) == without_lock(there)


def test_purge_frees_what_was_kept_once_the_broker_has_fetched_again(
    scene: tuple[Path, Options, Plan],
) -> None:
    root, chosen, plan = scene
    apply(plan, chosen)
    fetched(root)
    assert purge(plan, chosen).exit_code is ExitCode.DONE
    assert [path.name for path in (root / "t-0").iterdir()] == [f"{0:020d}.log"]


def fetched(root: Path, *, base: int = 0, data: bytes = b"new") -> None:
    """What a broker has in the folder after its start."""
    (root / "t-0" / f"{base:020d}.log").write_bytes(data)


def by_plan(root: Path, chosen: Options, plan: Plan) -> ApplyReport:
    del root
    return purge(plan, chosen)


def by_id(root: Path, chosen: Options, plan: Plan) -> ApplyReport:
    return purge_by_id(str(root), plan.plan_id, chosen)


@pytest.mark.parametrize("verb", [by_plan, by_id])
class TestPurgeBeforeTheFetch:
    def test_is_refused_and_leaves_what_may_be_the_only_copy(
        self, verb: Callable[..., ApplyReport], scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        apply(plan, chosen)
        there = tree(root)
        report = verb(root, chosen, plan)
        assert report.exit_code is ExitCode.REFUSED
        told = " ".join(one.why for one in report.results)
        assert "the broker has not fetched t-0 again; start it first, wait until it is in sync" in told
        assert report.next_command == f"krepair purge {root} --plan-id {plan.plan_id}"
        assert without_lock(tree(root)) == without_lock(there)
        assert undo(plan, chosen).exit_code is ExitCode.DONE

    def test_an_empty_log_of_a_start_is_no_fetch(
        self, verb: Callable[..., ApplyReport], scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        apply(plan, chosen)
        fetched(root, data=b"")
        assert verb(root, chosen, plan).exit_code is ExitCode.REFUSED

    def test_an_empty_log_where_the_log_of_the_leader_begins_is_one(
        self, verb: Callable[..., ApplyReport], scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        apply(plan, chosen)
        fetched(root, base=50, data=b"")
        assert verb(root, chosen, plan).exit_code is ExitCode.DONE

    def test_a_purge_that_was_begun_goes_on(
        self, verb: Callable[..., ApplyReport], scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        apply(plan, chosen)
        fetched(root)
        with pytest.raises(SimulatedCrash):
            purge(plan, chosen, disk=StoppingDisk(UnsyncedDisk(), 4))
        assert (root / "t-0" / f"krepair~{plan.plan_id}").is_dir()
        (root / "t-0" / f"{0:020d}.log").unlink()
        assert verb(root, chosen, plan).exit_code is ExitCode.DONE

    def test_the_other_partitions_of_the_plan_go_on(
        self, verb: Callable[..., ApplyReport], tmp_path: Path, judged: None
    ) -> None:
        root = log_dir(tmp_path / "b3")
        text = write(tmp_path / "both", ISR_OF_ALL.replace("Isr: 1,2,3", "Isr: 1,2"))
        chosen = options(tmp_path, partitions=(("t", 0), ("t", 1)), cluster=text)
        plan = make_plan(str(root), chosen)
        apply(plan, chosen)
        fetched(root)
        report = verb(root, chosen, plan)
        assert report.exit_code is ExitCode.PARTLY
        assert not (root / "t-0" / f"krepair~{plan.plan_id}").exists()
        assert [*(root / "t-1" / f"krepair~{plan.plan_id}" / "keep").iterdir()]

    def test_a_folder_that_the_broker_deletes_is_not_waited_for(
        self, verb: Callable[..., ApplyReport], scene: tuple[Path, Options, Plan]
    ) -> None:
        root, chosen, plan = scene
        apply(plan, chosen)
        (root / "t-0").rename(root / f"t-0.{'0' * 32}-delete")
        assert verb(root, chosen, plan).exit_code is ExitCode.DONE


def test_verify_names_no_purge_before_the_fetch(scene: tuple[Path, Options, Plan]) -> None:
    root, chosen, plan = scene
    apply(plan, chosen)
    report = verify_plan(plan, chosen)
    assert report.exit_code is ExitCode.DONE
    assert report.next_command.startswith(f"krepair check {root}   # then start the broker")


class TestRefused:
    def refused(self, root: Path, chosen: Options) -> str:
        there = tree(root)
        with pytest.raises(RefusedError) as caught:
            make_plan(str(root), chosen)
        assert tree(root) == there
        assert "kafka-transactions.sh abort" in caught.value.message
        return caught.value.message

    def test_a_replica_in_the_isr_is_refused(self, tmp_path: Path, judged: None) -> None:
        chosen = options(tmp_path, cluster=write(tmp_path / "d", ISR_OF_ALL))
        assert "is in the ISR" in self.refused(log_dir(tmp_path / "b3"), chosen)

    def test_the_only_replica_in_the_isr_is_refused(self, tmp_path: Path, judged: None) -> None:
        text = TEXT.replace(
            "Leader: 1\tReplicas: 1,2,3\tIsr: 1,2\n", "Leader: none\tReplicas: 1,2,3\tIsr: 3\n", 1
        )
        chosen = options(tmp_path, cluster=write(tmp_path / "d", text))
        told = self.refused(log_dir(tmp_path / "b3"), chosen)
        assert "is in the ISR (3)" in told
        assert "no leader" in told

    def test_one_of_two_partitions_refuses_both(self, tmp_path: Path, judged: None) -> None:
        chosen = options(tmp_path, partitions=(("t", 0), ("t", 1)))
        assert self.refused(log_dir(tmp_path / "b3"), chosen).startswith("t-1:")

    def test_a_proof_from_before_the_stop_is_refused(self, tmp_path: Path, judged: None) -> None:
        told = self.refused(
            log_dir(tmp_path / "b3", old=False), options(tmp_path, cluster_as_of=now_ms() - HOUR_MS)
        )
        assert "not later than this broker's last write" in told

    def test_a_partition_that_is_not_listed_is_refused(self, tmp_path: Path, judged: None) -> None:
        chosen = options(tmp_path, cluster=write(tmp_path / "d", TEXT.replace("t\t", "u\t")))
        assert "does not list it" in self.refused(log_dir(tmp_path / "b3"), chosen)

    def test_2_2_does_not_print_reassignments_but_zookeeper_says_them(
        self, tmp_path: Path, judged: None
    ) -> None:
        root, chosen = log_dir(tmp_path / "b3"), options(tmp_path)
        old = TEXT.replace(
            "Topic: t\tPartitionCount: 2\tReplicationFactor: 3\tConfigs: ",
            "Topic:t\tPartitionCount:2\tReplicationFactor:3\tConfigs:",
        )
        text = write(tmp_path / "d", old)
        assert "whether a reassignment" in self.refused(root, options(tmp_path, cluster=text))
        moving = write(
            tmp_path / "m", '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}'
        )
        both = options(tmp_path, cluster=text, cluster_configs=(*chosen.cluster_configs, moving))
        assert "reassignment is under way" in self.refused(root, both)
        none = write(tmp_path / "n", "Node does not exist: /admin/reassign_partitions\n")
        still = options(tmp_path, cluster=text, cluster_configs=(*chosen.cluster_configs, none))
        assert apply(make_plan(str(root), still), still).exit_code is ExitCode.DONE

    def test_unclean_election_on_or_not_known(self, tmp_path: Path, judged: None) -> None:
        root = log_dir(tmp_path / "b3")
        assert "--cluster-config" in self.refused(root, options(tmp_path, cluster_configs=()))
        on = write(tmp_path / "on", "broker.id=2\nunclean.leader.election.enable=true\n")
        off = write(tmp_path / "off", "broker.id=3\nlog.dir=/var/lib/kafka\n")
        assert "is on" in self.refused(root, options(tmp_path, cluster_configs=(off, on)))

    def test_compare_does_not_speak_for_it(self, tmp_path: Path) -> None:
        assert "does not call this replica wrong" in self.refused(log_dir(tmp_path / "b3"), options(tmp_path))

    def test_nobody_is_right_in_a_fork_and_both_sides_are_named(self, tmp_path: Path) -> None:
        log_dir(tmp_path / "b1", broker=1, leader_epoch=7)
        told = self.refused(log_dir(tmp_path / "b3", leader_epoch=5), options(tmp_path))
        assert "a fork: nobody is right by itself" in told
        commands = re.findall(r"krepair dump (\S+) > FILE", told)
        assert commands == [str(tmp_path / broker / "t-0") for broker in ("b3", "b1")]
        shown = [CliRunner().invoke(app, ["dump", path]) for path in commands]
        assert [one.exit_code for one in shown] == [0, 0]
        assert "epoch_entry epoch=5 " in shown[0].output
        assert "epoch_entry epoch=7 " in shown[1].output

    def test_a_second_replica_set_aside(self, tmp_path: Path, judged: None) -> None:
        other = log_dir(tmp_path / "b1")
        chosen = options(tmp_path, replicas=(f"2={log_dir(tmp_path / 'b2', broker=2)}",))
        plan = make_plan(str(other), chosen)
        apply(plan, chosen)
        both = options(tmp_path, replicas=(f"1={other}",))
        assert "one replica at a time" in self.refused(log_dir(tmp_path / "b3"), both)

    def test_the_broker_is_moving_it_to_another_log_directory(self, tmp_path: Path, judged: None) -> None:
        root = log_dir(tmp_path / "b3")
        (root / f"t-0.{'a' * 32}-future").mkdir()
        assert "moves it to another log directory" in self.refused(root, options(tmp_path))

    def test_beside_a_running_broker(self, tmp_path: Path, judged: None) -> None:
        with pytest.raises(UsageError, match="--preview with --fix refetch"):
            make_preview(str(log_dir(tmp_path / "b3")), options(tmp_path))

    @pytest.mark.parametrize(
        "changed",
        [
            {"replicas": ()},
            {"cluster": ""},
            {"partitions": ()},
            {"cluster_as_of": -1},
            {"keep": "until-verified"},
        ],
    )
    def test_what_is_not_typed_is_asked_for(
        self, tmp_path: Path, judged: None, changed: dict[str, object]
    ) -> None:
        with pytest.raises(UsageError):
            make_plan(str(log_dir(tmp_path / "b3")), options(tmp_path, **changed))


def damage(root: Path, folder: str = "t-0") -> None:
    """A batch has a wrong CRC."""
    log = root / folder / f"{10:020d}.log"
    log.write_bytes(log.read_bytes()[:-3] + b"abc")
    make_old(log)


class TestFactsFiles:
    """The other sides are facts files: no data has travelled."""

    def sides(
        self, tmp_path: Path, *brokers: int, at_ms: int | None = None, leader_epoch: int = 0
    ) -> tuple[str, ...]:
        for broker in brokers:
            if not (tmp_path / f"b{broker}").exists():
                log_dir(tmp_path / f"b{broker}", broker=broker, leader_epoch=leader_epoch)
            facts(
                [str(tmp_path / f"b{broker}")],
                str(tmp_path / f"b{broker}.facts"),
                Options(engine=Engine.INLINE, now_ms=now_ms() if at_ms is None else at_ms),
            )
        return tuple(f"{broker}={tmp_path / f'b{broker}.facts'}" for broker in brokers)

    def test_they_say_what_the_directories_say(self, tmp_path: Path) -> None:
        root = log_dir(tmp_path / "b3")
        damage(root)
        sides = self.sides(tmp_path, 1, 2)
        by_facts = make_plan(str(root), options(tmp_path, replicas=sides))
        by_dirs = make_plan(
            str(root),
            options(tmp_path, replicas=(f"1={tmp_path / 'b1'}", f"2={tmp_path / 'b2'}")),
        )
        one, other = (
            next(p.proof for p in plan.partitions if p.folder == "t-0") for plan in (by_facts, by_dirs)
        )
        assert isinstance(one, RefetchProof)
        assert isinstance(other, RefetchProof)
        assert (one.right, one.wrong, one.verdict) == (other.right, other.wrong, other.verdict)
        assert one.right == (1, 2)
        assert apply(by_facts, options(tmp_path)).exit_code is ExitCode.DONE

    def test_the_reviewer_reads_whose_journals_were_not_seen(self, tmp_path: Path) -> None:
        root = log_dir(tmp_path / "b3")
        damage(root)
        text = write(tmp_path / "alone", TEXT.replace("Isr: 1,2", "Isr: 1", 1))
        told = []
        for replicas in (self.sides(tmp_path, 1, 2), (f"1={tmp_path / 'b1'}", f"2={tmp_path / 'b2'}")):
            plan = make_plan(str(root), options(tmp_path, replicas=replicas, cluster=text))
            told.append(" ".join(next(one for one in plan.partitions if one.folder == "t-0").notes))
        assert "not seen: whether the replica of broker 2 is set aside too" in told[0]
        assert "not seen" not in told[1]
        assert all("only broker 1 is in sync" in notes for notes in told)

    def test_facts_from_before_the_stop_say_nothing_of_the_leader(self, tmp_path: Path) -> None:
        root = log_dir(tmp_path / "b3")
        damage(root)
        old = self.sides(tmp_path, 1, at_ms=now_ms() - 2 * HOUR_MS)
        with pytest.raises(RefusedError, match="of the leader 1 is from before this broker's last write"):
            make_plan(str(root), options(tmp_path, replicas=old))
        new = self.sides(tmp_path, 1)
        assert make_plan(str(root), options(tmp_path, replicas=new))

    def test_facts_of_a_replica_that_is_set_aside_are_no_right_replica(
        self, tmp_path: Path, judged: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leader = log_dir(tmp_path / "b1")
        plan = make_plan(
            str(leader), options(tmp_path, replicas=(f"2={log_dir(tmp_path / 'b2', broker=2)}",))
        )
        apply(plan, options(tmp_path))
        monkeypatch.undo()
        (leader / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
        root = log_dir(tmp_path / "b3")
        damage(root)
        with pytest.raises(RefusedError, match="does not call the leader's replica right"):
            make_plan(str(root), options(tmp_path, replicas=self.sides(tmp_path, 1)))

    @pytest.mark.parametrize(
        ("change", "error"),
        [
            (lambda data: data[: len(data) // 2], UnreadableError),
            (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], UnreadableError),
            (lambda data: data[:16] + b"\xff" + data[17:], RefusedError),
        ],
    )
    def test_facts_that_are_cut_changed_or_of_another_version_are_no_proof(
        self, tmp_path: Path, change: Callable[[bytes], bytes], error: type[KrepairError]
    ) -> None:
        root = log_dir(tmp_path / "b3")
        damage(root)
        (side,) = self.sides(tmp_path, 1)
        path = tmp_path / "b1.facts"
        path.write_bytes(change(path.read_bytes()))
        there = tree(root)
        with pytest.raises(error, match=r"b1\.facts"):
            make_plan(str(root), options(tmp_path, replicas=(side,)))
        assert tree(root) == there

    def test_facts_of_another_broker_than_typed_are_refused(self, tmp_path: Path) -> None:
        root = log_dir(tmp_path / "b3")
        damage(root)
        self.sides(tmp_path, 2)
        with pytest.raises(RefusedError, match="this is broker 2"):
            make_plan(str(root), options(tmp_path, replicas=(f"1={tmp_path / 'b2.facts'}",)))

    def test_in_a_fork_the_other_side_is_dumped_on_its_host(self, tmp_path: Path) -> None:
        root = log_dir(tmp_path / "b3", leader_epoch=5)
        with pytest.raises(RefusedError, match="nobody is right") as caught:
            make_plan(str(root), options(tmp_path, replicas=self.sides(tmp_path, 1, leader_epoch=7)))
        assert "on the host of broker 1 krepair dump LOGDIR/t-0 > FILE" in caught.value.message


def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    """The tools of a running cluster print what is prepared; on real clusters the runbook's test types the same."""
    for broker in (1, 2, 3):
        log_dir(tmp_path / f"b{broker}", broker=broker, topic="orders")
    root = tmp_path / "b3"
    damage(root, "orders-0")
    before = tree(root, private=False)
    tool = tmp_path / "kafka-topics.sh"
    tool.write_text(
        f"#!/bin/sh\ncat {write(tmp_path / 'printed', TEXT.replace('t' + chr(9), 'orders' + chr(9)))}\n"
    )
    tool.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    write(work / "server.properties", "broker.id=3\nlog.dirs=/var/lib/kafka\n")
    shell = Shell(
        work,
        {
            "kafka-topics.sh": str(tool),
            "/var/lib/kafka": str(root),
            **{f"/mnt/b{broker}/kafka": str(tmp_path / f"b{broker}") for broker in (1, 2, 3)},
            **dict.fromkeys(("2026-11-22T12:00:00Z", "2026-11-22T12:10:00Z"), time_text(now_ms())),
        },
    )
    codes = {"krepair plan": ExitCode.FOUND}
    # what is typed beside running brokers needs some: tests/brokers/test_live_ways.py
    typed = [
        one for one in commands_of("../refetch.md") if one.startswith("krepair") or "described.txt" in one
    ]
    assert [" ".join(command.split()[:2]) for command in typed] == [
        "kafka-topics.sh --bootstrap-server",
        "krepair plan",
        "krepair show",
        "krepair apply",
        "krepair verify",
        "krepair compare",
        "krepair purge",
        "krepair dump",
        "krepair dump",
    ]
    for command in typed:
        if command.startswith("krepair compare"):  # the broker has fetched it meanwhile
            new = shutil.copytree(tmp_path / "b1" / "orders-0", tmp_path / "fetched")
            for path in new.iterdir():
                path.rename(root / "orders-0" / path.name)
        if command.startswith("krepair apply"):
            there = tree(root, private=False)
            assert there == before
        expected = codes.get(" ".join(command.split()[:2]), ExitCode.DONE)
        assert shell.type(command) == expected, (command, shell.said[-1][1][-3000:])
    assert not [*root.rglob("krepair~*")]
    assert (work / "orders-0.b1.txt").read_text().count("batch ") == 3


@pytest.mark.parametrize(("seconds", "too_old"), [(3660 + 30, True), (3600 + 30, False), (0, False)])
def test_a_snapshot_of_the_leader_from_before_the_stop_says_nothing_of_it(
    seconds: int, too_old: bool, tmp_path: Path, judged: None
) -> None:
    """A running broker writes its checkpoints once a minute: a snapshot's files may be that much older."""
    root, chosen = log_dir(tmp_path / "b3"), options(tmp_path)
    at = time.time_ns() - seconds * 1_000_000_000
    for path in (tmp_path / "b1").rglob("*"):
        os.utime(path, ns=(at, at))
    if not too_old:
        assert make_plan(str(root), chosen)
        return
    with pytest.raises(RefusedError, match="of the leader 1 is from before this broker's last write"):
        make_plan(str(root), chosen)


class TestOtherLogDirs:
    """The broker has a second log directory."""

    @pytest.fixture
    def two(self, tmp_path: Path, judged: None) -> tuple[Path, Path, Options]:
        root, other = log_dir(tmp_path / "b3"), log_dir(tmp_path / "b3-2", topic="u")
        config = write(tmp_path / "own", f"broker.id=3\nlog.dirs={root},{other}\n")
        return root, other, options(tmp_path, cluster_configs=(config,))

    def refused(self, root: Path, chosen: Options) -> str:
        with pytest.raises(RefusedError) as caught:
            make_plan(str(root), chosen)
        return caught.value.message

    def test_what_it_wrote_there_counts(self, two: tuple[Path, Path, Options]) -> None:
        root, other, chosen = two
        plan = make_plan(str(root), chosen)
        (proof,) = (one.proof for one in plan.partitions if isinstance(one.proof, RefetchProof))
        assert proof.other_dirs == (str(other),)
        late = time.time_ns() + 30_000_000_000
        os.utime(other / CHECKPOINTS[0], ns=(late, late))
        assert "not later than this broker's last write" in self.refused(root, chosen)
        there = tree(root, private=False)
        with pytest.raises(RefusedError, match="not later than this broker's last write"):
            apply(plan, chosen)
        assert without_lock(tree(root, private=False)) == without_lock(there)

    @pytest.mark.parametrize("folder", [f"t-0.{'a' * 32}-future", "t-0"])
    def test_a_partition_that_is_there_as_well_is_not_emptied(
        self, folder: str, two: tuple[Path, Path, Options]
    ) -> None:
        root, other, chosen = two
        plan = make_plan(str(root), chosen)
        (other / folder).mkdir()
        assert f"{other}/{folder}" in self.refused(root, chosen)
        with pytest.raises(RefusedError, match=str(other)):
            apply(plan, chosen)

    def test_one_that_is_gone_or_of_another_broker_is_not_known(
        self, two: tuple[Path, Path, Options]
    ) -> None:
        root, other, chosen = two
        plan = make_plan(str(root), chosen)
        (other / "meta.properties").write_text("version=0\nbroker.id=4\ncluster.id=c\n")
        assert "is of broker 4, not 3" in self.refused(root, chosen)
        other.rename(other.parent / "away")
        assert "one of this broker's log directories" in self.refused(root, chosen)
        with pytest.raises(RefusedError, match="one of this broker's log directories"):
            apply(plan, chosen)

    def test_without_a_word_of_them_it_is_refused(
        self, two: tuple[Path, Path, Options], tmp_path: Path
    ) -> None:
        root, other, _ = two
        for text in ("broker.id=1\nlog.dirs=/d1\n", "broker.id=3\nlog.dirs=/d1,/d2\n", "broker.id=3\n"):
            config = write(tmp_path / "config", text)
            told = self.refused(root, options(tmp_path, cluster_configs=(config,)))
            assert "--replicas 3=LOGDIR,LOGDIR" in told
        by_config = options(tmp_path, config=write(tmp_path / "own", f"log.dirs={root},{other}\n"))
        by_side = options(tmp_path, replicas=(f"1={tmp_path / 'b1'}", f"3={root},{other}"))
        for chosen in (by_config, by_side):
            (proof,) = (
                one.proof
                for one in make_plan(str(root), chosen).partitions
                if isinstance(one.proof, RefetchProof)
            )
            assert proof.other_dirs == (str(other),)

    @pytest.mark.parametrize(
        ("registered", "says"), [(1, ""), (2, "it is not known"), (3, "it is not known")]
    )
    def test_the_metadata_log_says_how_many_there_are(
        self, registered: int, says: str, two: tuple[Path, Path, Options]
    ) -> None:
        root, other, _ = two
        view = read_log_dir(str(root))
        cluster = ClusterView(
            path="m",
            source="metadata-log",
            source_is_certain=True,
            digest="",
            cluster_id="",
            as_of_ms=1,
            partitions={},
            topic_configs={},
            brokers={3: BrokerRegistration(1, True, tuple("abc"[:registered]))},
        )
        assert other_dirs(view, None, None, (), cluster).unknown.startswith(says)
        assert bool(other_dirs(view, None, None, (), cluster).unknown) == bool(says)
        named = other_dirs(view, Side(broker_id=3, log_dirs=(str(root), str(other))), None, (), cluster)
        assert ("registered 3 log directories, and only 2" in named.unknown) == (registered == 3)


class TestApplyNeedsItAgain:
    @pytest.mark.parametrize(
        ("changed", "says"),
        [
            ({"cluster": ""}, "at most 10 minutes old"),
            ({"cluster_as_of": now_ms() - 700_000}, "s old"),
            ({"cluster": ISR_OF_ALL}, "is in the ISR"),
        ],
    )
    def test_without_it_or_if_it_changed_nothing_is_touched(
        self, scene: tuple[Path, Options, Plan], tmp_path: Path, changed: dict[str, object], says: str
    ) -> None:
        root, _, plan = scene
        if "Topic" in str(changed.get("cluster", "")):
            changed = {"cluster": write(tmp_path / "fresh", ISR_OF_ALL)}
        there = tree(root, private=False)
        with pytest.raises(KrepairError, match=says):
            apply(plan, options(tmp_path, **changed))
        found = tree(root, private=False)
        assert {**found, ".lock": None} == {**there, ".lock": None}

    def test_the_next_command_asks_for_the_files_that_the_plan_was_made_with(
        self, scene: tuple[Path, Options, Plan], tmp_path: Path
    ) -> None:
        _, _, plan = scene
        assert plan.asked is not UNSET
        for configs, named in ((("/f",), True), (UNSET, False)):
            made = replace(plan, asked=replace(plan.asked, cluster_configs=configs))
            with pytest.raises(RefusedError) as caught:
                check_again(made, options(tmp_path, cluster=""), read_log_dir(plan.log_dir))
            command = caught.value.next_command
            assert command.startswith("krepair apply PLAN --cluster FILE [--cluster-as-of TIME]")
            assert command.endswith(" --cluster-config FILE") == named

    def test_a_new_leader_that_compare_calls_right_will_do(
        self, scene: tuple[Path, Options, Plan], tmp_path: Path
    ) -> None:
        _, _, plan = scene
        fresh = write(tmp_path / "fresh", TEXT.replace("Leader: 1", "Leader: 2", 1))
        assert apply(plan, options(tmp_path, cluster=fresh)).exit_code is ExitCode.DONE


def test_a_journal_that_is_made_again_tells_lines_that_are_still_there_from_lines_that_are_gone(
    tmp_path: Path, judged: None
) -> None:
    for stop in each_stop(first=3, step=7):
        root, chosen, plan, before = planned(tmp_path, stop.number, segments=1)
        with stop as disk:
            apply(plan, chosen, disk=disk)
        for journal in root.rglob("journal"):
            journal.write_bytes(b"")
        assert rebuild(plan, chosen).exit_code is ExitCode.DONE, stop.number
        assert undo(plan, chosen).exit_code is ExitCode.DONE, stop.number
        assert without_lock(tree(root, private=False)) == without_lock(before), stop.number
