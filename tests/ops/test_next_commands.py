"""What ``check`` and ``plan`` say is to be typed next works when it is typed, and is said once."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.cli.views.check import check_view
from krepair.cli.views.planned import not_mended, planned_view
from krepair.cli.views.writers import plain
from krepair.errors import ExitCode
from krepair.findings.reports import CheckReport
from krepair.formats.broker_version import why_not_tried
from krepair.logdir.lock import Holder
from krepair.ops import plan as plan_module
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.show import show_view
from krepair.options import LOSS_RULES, EngineName, Options, parse_delete_horizon
from krepair.plan.commands import plan_command
from krepair.plan.planfile import read_plan
from krepair.plan.view import View
from krepair.rules.evidence import DESCRIBE
from tests import builders
from tests.compaction.directories import Verbs
from tests.fixture_dirs import unpack
from tests.flips import flip
from tests.hostile.verbs import run
from tests.ops.replica_scenes import directory, given, watermark

pytestmark = pytest.mark.replicas


def commands(page: View) -> list[str]:
    return [str(command) for section in page.sections for command in section.commands]


def test_what_the_cluster_says_is_asked_for_once(tmp_path: Path) -> None:
    """The file that was given is no evidence: it lists another topic."""
    log_dir = directory(tmp_path)
    watermark(log_dir)
    text = "Topic: u\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: \n"
    text += "\tTopic: u\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"
    (tmp_path / "given").write_text(text)
    plan = Verbs(log_dir, given(tmp_path, "none", cluster=str(tmp_path / "given"))).plan()
    *_, again = (command for command in commands(show_view(plan, "P")) if command.startswith("krepair plan"))
    words = shlex.split(again)
    assert (words.count("--cluster"), words[words.index("--cluster") + 1]) == (1, "cluster.txt")


@pytest.mark.parametrize("fix", ["tail", "epochs"])
def test_what_mends_a_damaged_transaction_index_is_named(fix: str, tmp_path: Path) -> None:
    """``index`` alone does not read the log of a topic that is not compacted."""
    made = builders.LogDir(tmp_path / "logs")
    one = made.partition("t").segment(builders.data(0, 3, pid=1, txn=True), builders.abort(3, pid=1))
    log_dir = made.write()
    index = one.folder / f"{0:020d}.txnindex"
    index.write_bytes(index.read_bytes() + bytes(9))
    (left,) = make_plan(str(log_dir), Options(engine=EngineName.INLINE, fixes=(fix,))).partitions
    assert left.code == "txnindex-damage"
    words = shlex.split(left.next_command)
    fixes = tuple(words[words.index("--fix") + 1].split(","))
    assert make_plan(str(log_dir), Options(engine=EngineName.INLINE, fixes=fixes)).partitions[0].changes


@pytest.mark.parametrize(("fix", "word"), [("tail", "tail=broker"), ("epochs", "tail,index=regenerate")])
def test_where_a_log_and_its_transaction_index_are_damaged_no_command_leads_back_to_itself(
    fix: str, word: str, tmp_path: Path
) -> None:
    """A replay makes the index again, but not over the damage; and no cut may take an unknown marker alone."""
    made = builders.LogDir(tmp_path / "logs")
    batches = (builders.data(0, 3, pid=1, txn=True), builders.data(3, 2), builders.abort(5, pid=1))
    first = made.partition("t").segment(*batches)
    log_dir = made.write()
    name = f"{0:020d}"
    flip(first.folder / f"{name}.log", len(batches[0].raw) + 70)
    (first.folder / f"{name}.txnindex").write_bytes(bytes(9))
    (left,) = make_plan(str(log_dir), Options(engine=EngineName.INLINE, fixes=(fix,))).partitions
    words = shlex.split(left.next_command)
    assert words[words.index("--fix") + 1] == word
    assert ("whose abort marker is among these bytes" in left.why) is (fix == "tail")


@pytest.mark.parametrize("fix", ["markers", "recovery"])
def test_under_a_lock_plan_names_the_preview_where_there_can_be_one(
    fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = directory(tmp_path)
    monkeypatch.setattr(plan_module, "is_locked", lambda _: Holder(7, "java"))
    ran = run("plan", str(log_dir), "--fix", fix, "--topic", "t")
    assert ran.code == ExitCode.LOCKED
    if fix == "markers":
        assert "stop the broker, or add --preview" in ran.err
        assert f"next: krepair plan {log_dir} --preview --topic t --out PLAN" in ran.err
    else:
        assert "stop the broker, then type the same command again" in ran.err
        assert "next:" not in ran.err


def test_another_krepair_is_waited_for_and_no_broker_is_stopped_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = directory(tmp_path)
    monkeypatch.setattr(plan_module, "is_locked", lambda _: Holder(7, "krepair"))
    ran = run("plan", str(log_dir), "--topic", "t")
    assert ran.err.endswith(
        "is locked by process 7 (krepair): wait until it has ended, then type the same command again\n"
    )


def test_the_scratch_folder_is_carried_on(tmp_path: Path) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    chosen = given(tmp_path, "none", scratch=str(tmp_path))
    found = commands(planned_view(Verbs(log_dir, chosen).plan(), "P", chosen))
    typed = [command for command in found if command.startswith(("krepair plan ", "krepair apply "))]
    assert len(typed) == 3
    for command in typed:
        assert f" --scratch {tmp_path}" in command
        assert command.endswith(" --out PLAN") is command.startswith("krepair plan ")
    assert not any(
        "--scratch" in command for command in commands(planned_view(Verbs(log_dir, chosen).plan(), "P"))
    )


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--fix epochs,tail --topic t --topic u",
        "--fix markers,index=truncate --keep auto --no-merge --set segment.bytes=4096 --broker-version 3.9.2",
        "--partition t-0 --as-broker --delete-horizon 2023-11-14T22:13:20Z --assume-high-watermark log-end",
        "--only-replica t --config server.properties --topic-config topics.json",
    ],
)
def test_a_saved_plan_says_from_any_folder_what_makes_it_again(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = directory(tmp_path)
    watermark(log_dir)
    (tmp_path / "server.properties").write_text(f"broker.id=1\nlog.dirs={log_dir}\n")
    (tmp_path / "topics.json").write_text('{"t": {"cleanup.policy": "compact"}}')
    monkeypatch.chdir(tmp_path)
    run("plan", str(log_dir), *words.split(), "--out", "first")
    first = read_plan("first")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = shlex.split(str(plan_command(first)))
    run(*again[1:-1], "second")
    second = read_plan("second")
    assert second.asked == first.asked
    assert replace(second.policy, room=UNSET) == replace(first.policy, room=UNSET)
    assert second.partitions == first.partitions


# -- After markers went as far as they may without evidence, ``check`` names the evidence that is missing.

NOW_MS = 1_795_658_400_000
WITH_FILE = "--cluster cluster.txt --out PLAN"
CLUSTER = "Topic: __consumer_offsets\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: \n" + "".join(
    f"\tTopic: __consumer_offsets\tPartition: {number}\tLeader: 2\tReplicas: 1,2\tIsr: 2\n"
    for number in (0, 1)
)


def options_now(**given: object) -> Options:
    return Options(engine=EngineName.INLINE, now_ms=NOW_MS, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bloated directory of which a plan without evidence was applied."""
    log_dir = unpack("offsets-bloat-2.2.0-clean", tmp_path_factory.mktemp("bloat"))
    before = check([str(log_dir)], options_now())
    assert str(before.next_command) == f"krepair plan {log_dir} --out PLAN"
    assert apply(make_plan(str(log_dir), options_now()), options_now()).exit_code is ExitCode.DONE
    return log_dir


def bloat(report: CheckReport) -> list[Finding]:
    return [one for one in report.log_dirs[0].findings if one.rule == "KR101"]


def test_where_only_a_later_horizon_frees_something_the_next_command_names_both(
    cleaned: Path, tmp_path: Path
) -> None:
    report = check([str(cleaned)], options_now())
    command = f"krepair plan {cleaned} --delete-horizon 2026-11-26T02:00:00.000Z {WITH_FILE}"
    assert str(report.next_command) == command
    assert {str(one.command) for one in bloat(report)} == {command}
    assert all(
        "; 0 of " in one.evidence and "0 with evidence that no other replica needs them" in one.evidence
        for one in bloat(report)
    )
    said = shlex.split(command)
    (tmp_path / "cluster.txt").write_text(CLUSTER)
    log_dir = tmp_path / "logs"
    shutil.copytree(cleaned, log_dir)
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    horizon = parse_delete_horizon(said[said.index("--delete-horizon") + 1])
    typed = options_now(cluster=str(tmp_path / "cluster.txt"), delete_horizon=horizon)
    assert any(one.changes for one in make_plan(str(log_dir), typed).partitions)
    assert not any(one.changes for one in make_plan(str(log_dir), options_now()).partitions)


def test_where_time_alone_frees_something_no_horizon_is_named(cleaned: Path) -> None:
    report = check([str(cleaned)], options_now(settings=(("delete.retention.ms", "0"),)))
    assert str(report.next_command) == f"krepair plan {cleaned} {WITH_FILE}"


@pytest.mark.parametrize(("rule", "width"), [("", 0), ("", 80), ("KR101", 0)], ids=["file", "screen", "rule"])
def test_the_page_names_first_what_writes_the_file_that_the_plan_reads(
    cleaned: Path, rule: str, width: int
) -> None:
    report = check([str(cleaned)], options_now())
    page = plain(check_view(report, options_now(rule=rule), width))
    assert page.rstrip().endswith(f"  {DESCRIBE}\n  {report.next_command}")
    assert page.count(str(DESCRIBE)) == (2 if rule else 1)


def test_beside_what_another_fix_mends_the_next_command_is_its_own(cleaned: Path, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    shutil.copytree(cleaned, log_dir)
    (log_dir / "__consumer_offsets-0" / "leader-epoch-checkpoint").write_bytes(b"0\n7\n")
    report = check([str(log_dir)], options_now())
    assert "epochs" in str(report.next_command)
    assert WITH_FILE not in str(report.next_command)


# -- What a plan says of what it did not look at.


@pytest.fixture
def ordinary_topics(tmp_path: Path) -> Path:
    """A log directory of which no topic is known to be compacted."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(b"")
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    return tmp_path


@pytest.mark.parametrize("fix", ["compact", "markers"])
def test_where_no_topic_is_known_to_be_compacted_the_plan_says_what_would_tell_it(
    ordinary_topics: Path, fix: str
) -> None:
    plan = make_plan(str(ordinary_topics), Options(fixes=(fix,), engine=EngineName.INLINE))
    (line, _) = not_mended(plan).lines
    assert line.startswith(f"No partition was examined for --fix {fix}: it takes __consumer_offsets")
    assert "--topic-config FILE" in line


def test_damage_in_a_partition_that_a_plan_changes_is_named_with_what_mends_it(
    log_dir: Path, tmp_path: Path
) -> None:
    """``epochs`` replaced a file beside KR302, and the page of its plan was that of a healthy log."""
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"0\n7\n")
    page = run("plan", str(log_dir), "--fix", "epochs", "--out", str(tmp_path / "P")).out
    row = page.partition("Besides  ")[2].partition("\nUndo")[0]
    assert " ".join(row.split()).startswith(f"KR302 would stay in orders-0/{0:020d}.log, position 80: ")
    assert "a broker's recovery cuts here" in " ".join(row.split())
    mend = f"krepair plan {log_dir} --fix tail --accept-data-loss KR302:orders-0:1"
    assert mend in run("show", str(tmp_path / "P"), "--section", "partitions").out
    both = ("--fix", "epochs,tail=excise", "--accept-data-loss", "KR302:orders-0:1")
    assert "Besides" not in run("plan", str(log_dir), *both, "--out", str(tmp_path / "Q")).out


def test_a_fix_that_takes_every_partition_says_nothing_of_that_kind(ordinary_topics: Path) -> None:
    plan = make_plan(str(ordinary_topics), Options(fixes=("epochs",), engine=EngineName.INLINE))
    assert [line.partition(" ")[0] for line in not_mended(plan).lines] == ["This"]


def test_a_name_that_is_not_there_is_told_beside_one_that_is(ordinary_topics: Path) -> None:
    """A typing error in one name of two looked like a plan of both."""
    options = Options(
        fixes=("epochs",),
        engine=EngineName.INLINE,
        topics=("orders", "order", "b", "c"),
        partitions=(("orders", 0), ("orders", 7)),
    )
    line, *_ = not_mended(make_plan(str(ordinary_topics), options)).lines
    assert line == (
        "Not examined: topic order, topic b, topic c and 1 more. This directory does not contain it, or --fix epochs "
        "does not apply to it."
    )


# -- Before a way out that loses data, every page names the one that loses nothing: another replica may have the
# data.

SAID = "If another replica is in sync, nothing has to be lost"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A batch in the middle of a log has a wrong CRC (KR302)."""
    made = builders.LogDir(tmp_path / "logs")
    partition = made.partition("orders", 0)
    partition.segment(*(builders.data(place, 1) for place in range(3)))
    partition.segment(builders.data(3, 1))
    made.write(clean_stop=True)
    log = tmp_path / "logs" / "orders-0" / f"{0:020d}.log"
    flip(log, bits=0xFF)
    return tmp_path / "logs"


@pytest.mark.parametrize(
    "words", [("check", "--partition", "orders-0"), ("check", "--rule", "KR302"), ("plan", "--fix", "tail")]
)
def test_what_loses_nothing_stands_before_what_loses_data(words: tuple[str, ...], log_dir: Path) -> None:
    ran = run(words[0], str(log_dir), *words[1:], "--engine", "inline")
    assert ran.code == ExitCode.FOUND
    assert ran.out.index(SAID) < ran.out.index("--fix tail --accept-data-loss KR302:orders-0:1")


def test_explain_says_it_too() -> None:
    for rule in LOSS_RULES:
        assert SAID in run("explain", rule).out
    assert SAID not in run("explain", "KR301").out


# -- A version that nobody has tried is taken for the latest that was, and the page says so.


@pytest.mark.parametrize(
    ("version", "later"),
    [("", False), ("2.2.1", False), ("4.4.0", False), ("4.4", False), ("4.4.1", True), ("9.9", True)],
)
def test_check_and_plan_say_that_a_version_is_later_than_all_that_were_tried(
    version: str, later: bool, tmp_path: Path
) -> None:
    log_dir = str(directory(tmp_path))
    words = ("--broker-version", version, "--engine", "inline")
    told = f"{version} is later than 4.4.0, the latest that was tried: the forecast is that of 4.4.0."
    assert (told in run("check", log_dir, *words).out) is later
    row = f"{version} (later than 4.4.0, the latest that was tried)"
    run("plan", log_dir, *words, "--out", str(tmp_path / "plan"))
    assert (row in run("show", str(tmp_path / "plan")).out) is later
    assert bool(why_not_tried(version)) is later
