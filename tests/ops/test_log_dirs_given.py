"""Names and log directories that were given: several, of one broker or of others, with a configuration of another."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from krepair.cli.main import app
from krepair.errors import ExitCode, NotALogDirError, UsageError
from krepair.fixes.replicas import parse_broker, parse_brokers
from krepair.logdir.config import configured_log_dirs
from krepair.logdir.view import read_log_dir
from krepair.ops.check import check
from krepair.ops.facts import facts
from krepair.ops.groups import groups
from krepair.ops.show import show_view
from krepair.ops.transactions import transactions
from krepair.ops.verify import verify_log_dir, verify_log_dirs
from krepair.options import EngineName, Options
from krepair.start.log_dirs_given import log_dirs_asked_for, other_dirs
from tests.builders import NOW_MS
from tests.hostile.verbs import run
from tests.ops.replicas_read import applied, cleaned, verbs, whole
from tests.ops.replicas_read import broker as broker_dir
from tests.ops.scene import tree

pytestmark = pytest.mark.replicas


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """Two log directories of one broker with a partition each, and its configuration."""
    for number, name in enumerate(("one", "two")):
        folder = tmp_path / name / f"orders-{number}"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").write_bytes(b"")
        (tmp_path / name / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}/one, {tmp_path}/two\nbroker.id=1\n")
    return tmp_path


def options(**asked: object) -> Options:
    return Options(engine=EngineName.INLINE, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"topics": ("order",)}, r"topic order \(did you mean orders\?\)"),
        ({"partitions": (("orders", 7),)}, "partition orders-7"),
        ({"topics": ("orders", "nowhere")}, "topic nowhere"),
    ],
)
def test_a_topic_or_partition_that_is_not_there_does_not_look_healthy(
    broker: Path, asked: dict[str, object], words: str
) -> None:
    with pytest.raises(NotALogDirError, match=f"not there: {words}") as checked:
        check([str(broker / "one")], options(**asked))
    assert checked.value.exit_code == ExitCode.NOT_A_LOG_DIR
    with pytest.raises(NotALogDirError, match=f"not there: {words}"):
        verify_log_dir(str(broker / "one"), options(**asked))
    with pytest.raises(NotALogDirError, match=f"not there: {words}"):
        groups(str(broker / "one"), options(**asked))
    with pytest.raises(NotALogDirError, match=f"not there: {words}"):
        transactions(str(broker / "one"), options(**asked))
    # One command is run on all brokers of a cluster: one of them may have none of these partitions.
    facts([str(broker / "one")], str(broker / "b1.facts"), options(**asked))
    assert (broker / "b1.facts").exists()


@pytest.mark.parametrize("verb", ["check", "plan", "verify", "groups", "transactions"])
def test_the_next_command_after_a_name_that_is_not_there_does_not_have_that_name(
    broker: Path, verb: str
) -> None:
    asked = ("--partition", "orders-7") if verb == "groups" else ("--topic", "order")
    ran = run(verb, str(broker / "one"), *asked, "--engine", "inline")
    assert ran.code == ExitCode.NOT_A_LOG_DIR
    assert "not there: " in ran.err
    assert ran.err.endswith(f"\nnext: krepair check {broker}/one\n")


def test_a_partition_in_the_second_log_directory_is_there(broker: Path) -> None:
    report = check([str(broker / "one"), str(broker / "two")], options(partitions=(("orders", 1),)))
    assert [len(log_dir.partitions) for log_dir in report.log_dirs] == [0, 1]


def test_log_directories_of_the_configuration_that_were_not_given_are_told(broker: Path) -> None:
    config = str(broker / "server.properties")
    assert check([str(broker / "one")], options(config=config)).left_out == (f"{broker}/two",)
    assert check(log_dirs_asked_for([], config), options(config=config)).left_out == ()
    (broker / "copy" / "meta").mkdir(parents=True)
    (broker / "copy" / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (broker / "copy" / "meta").rmdir()
    assert check([str(broker / "copy")], options(config=config)).left_out == ()


def test_the_configuration_alone_names_all_log_directories(broker: Path) -> None:
    config = str(broker / "server.properties")
    assert log_dirs_asked_for([], config) == [f"{broker}/one", f"{broker}/two"]
    (broker / "other").write_text("log.dir=/var/lib/kafka\n")
    assert configured_log_dirs(str(broker / "other")) == ("/var/lib/kafka",)
    (broker / "none").write_text("broker.id=1\n")
    with pytest.raises(UsageError, match=r"neither log\.dirs nor log\.dir"):
        log_dirs_asked_for([], str(broker / "none"))
    with pytest.raises(UsageError, match="give LOGDIR, or --config"):
        log_dirs_asked_for([], None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--only-replica", "order"), "--only-replica order (did you mean orders?)"),
        (("--only-replica", "orders", "--only-replica", "nosuch"), "--only-replica nosuch"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--preview",)])
def test_a_consent_for_a_name_that_is_not_there_is_refused(
    more: tuple[str, ...], words: tuple[str, ...], says: str, broker: Path
) -> None:
    ran = run("plan", str(broker / "one"), *words, *more, "--engine", "inline")
    assert ran.code == ExitCode.NOT_A_LOG_DIR, ran.err
    assert f"{broker}/one: not there: {says}" in ran.err
    assert ran.err.endswith(f"\nnext: krepair check {broker}/one\n")


def test_a_consent_for_all_topics_is_no_typo(broker: Path) -> None:
    assert run("plan", str(broker / "one"), "--only-replica", "*", "--engine", "inline").code == ExitCode.DONE


# -- Brokers are read as typed, and each mistake is named.


def test_directories_and_facts_are_told_apart_by_what_is_there(tmp_path: Path) -> None:
    facts = tmp_path / "b3.facts"
    facts.write_bytes(b"x")
    assert parse_broker(f"3={facts}").facts == str(facts)
    assert parse_broker(f"2={tmp_path}/a,{tmp_path}/b").log_dirs == (f"{tmp_path}/a", f"{tmp_path}/b")


def test_a_path_is_made_absolute_and_can_be_typed_again() -> None:
    side = parse_broker("7=some/dir")
    assert side.log_dirs == (os.path.abspath("some/dir"),)
    assert parse_broker(side.text) == side


def test_sides_come_in_the_order_of_their_brokers() -> None:
    assert [side.broker_id for side in parse_brokers(["10=/a", "2=/b"])] == [2, 10]


@pytest.mark.parametrize("text", ["", "=", "1", "1=", "x=/a", "-1=/a", "1=,", "4294967296=/a", "²=/a"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="ID=LOGDIR"):
        parse_broker(text)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["1=/a", "1=/b"], "broker 1 is given twice"),
        (["1=/a", "2=/a"], "given for two brokers"),
        (["1=/a,/a"], "a directory is given twice"),
        (["1=/a"], "at least 2"),
    ],
)
def test_a_side_given_twice_or_alone_is_refused(texts: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_brokers(texts, at_least=2)


# -- A configuration of another broker proves nothing of this one: facts refuse it, and a plan keeps what needs
# it.


@pytest.fixture
def b3(tmp_path: Path) -> Path:
    return broker_dir(tmp_path, 3, cleaned())


def config(root: Path, text: str) -> str:
    path = root / "server.properties"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node.id=2\nlog.dirs=ROOT/b2\n", "is of broker 2; ROOT/b3 is of broker 3"),
        ("broker.id=2\nlog.dirs=ROOT/b3\n", "is of broker 2; ROOT/b3 is of broker 3"),
        ("broker.id=3\nlog.dirs=ROOT/b2\n", "does not name ROOT/b3: its log.dirs are ROOT/b2"),
        ("log.dir=ROOT/b2\n", "does not name ROOT/b3: its log.dirs are ROOT/b2"),
        ("broker.id=3\n", "does not name ROOT/b3: without log.dirs it means /tmp/kafka-logs"),
    ],
)
def test_facts_with_the_configuration_of_another_broker_are_refused(
    text: str, says: str, tmp_path: Path, b3: Path
) -> None:
    path = config(tmp_path, text.replace("ROOT", str(tmp_path)))
    out = tmp_path / "b3.facts"
    ran = run("facts", str(b3), "--config", path, "--out", str(out), "--engine", "inline")
    assert ran.code == ExitCode.REFUSED, ran.err
    assert says.replace("ROOT", str(tmp_path)) in ran.err
    assert f"next: krepair facts {b3} --config FILE --out FACTS" in ran.err
    assert not out.exists()


@pytest.mark.parametrize(
    "text", ["node.id=3\nlog.dirs=ROOT/link\n", "log.dir=ROOT/b3\n", "log.dirs=ROOT/../ROOTNAME/b3/\n"]
)
def test_a_link_or_another_spelling_of_the_path_is_the_same_directory(
    text: str, tmp_path: Path, b3: Path
) -> None:
    (tmp_path / "link").symlink_to(b3)
    path = config(tmp_path, text.replace("ROOTNAME", tmp_path.name).replace("ROOT", str(tmp_path)))
    out = tmp_path / "b3.facts"
    assert (
        run("facts", str(b3), "--config", path, "--out", str(out), "--engine", "inline").code == ExitCode.DONE
    )


def test_the_page_of_a_plan_says_what_is_only_your_word(tmp_path: Path) -> None:
    broker_dir(tmp_path, 1, cleaned())
    plan = applied(verbs(tmp_path, "compact", f"2={broker_dir(tmp_path, 2, cleaned())}", replicas="1,2"))
    lines = [line for section in show_view(plan, "PLAN").sections for line in section.lines]
    (line,) = (line for line in lines if line.startswith("Evidence for 1 partition: "))
    said = "that these are all log directories of broker 2 is your word"
    assert said in line
    assert said.replace("broker 2", "broker 1") in line, "nobody has said anything of those of this broker"


@pytest.mark.parametrize("by", ["config", "its own side"])
def test_what_was_said_of_this_brokers_log_directories_is_no_more_asked_for(by: str, tmp_path: Path) -> None:
    own, others = broker_dir(tmp_path, 1, cleaned()), [f"2={broker_dir(tmp_path, 2, cleaned())}"]
    given = {"config": config(tmp_path, f"node.id=1\nlog.dirs={own}\n")} if by == "config" else {}
    plan = applied(
        verbs(tmp_path, "compact", *others, *([] if given else [f"1={own}"]), replicas="1,2", **given)
    )
    lines = [line for section in show_view(plan, "PLAN").sections for line in section.lines]
    (line,) = (line for line in lines if "is your word" in line)
    assert line.count("is your word") == line.count("log directories of broker 2 is your word") == 1


def test_the_other_log_directories_of_a_broker_are_not_those_of_another_broker(
    tmp_path: Path, b3: Path
) -> None:
    """A configuration with one directory elsewhere is of a copy; with the id of another broker it is of that one."""
    view = read_log_dir(str(b3))
    copied = other_dirs(view, None, config(tmp_path, "broker.id=3\nlog.dirs=/elsewhere\n"), None)
    assert (copied.views, copied.unknown) == ((), "")
    found = other_dirs(view, None, config(tmp_path, "broker.id=2\nlog.dirs=/elsewhere\n"), None)
    assert f"is of broker 2; {b3} is of broker 3" in found.unknown
    assert not found.unsaid


@pytest.mark.parametrize("number", [2, 3])
def test_the_page_of_a_plan_says_that_its_configuration_is_of_another_broker(
    number: int, tmp_path: Path, b3: Path
) -> None:
    path = config(tmp_path, f"node.id={number}\nlog.dirs={b3}\n")
    ran = run("plan", str(b3), "--config", path, "--engine", "inline")
    said = f"{path} is of broker 2; {b3} is of broker 3. The settings are those of broker 2."
    assert (said in ran.out) is (number == 2)


# -- Several log directories in one run of check and verify.

OPTIONS = Options(engine=EngineName.INLINE, now_ms=NOW_MS)


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Three brokers with the same partition; that of broker 2 is damaged."""
    found = [broker_dir(tmp_path, number, whole() if number == 1 else cleaned()) for number in (1, 2, 3)]
    log = found[1] / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-3] + b"abc")
    return [str(path) for path in found]


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--engine", "inline"])


class TestVerify:
    def test_each_report_is_that_of_a_run_of_its_own(self, dirs: list[str]) -> None:
        before = [tree(Path(path)) for path in dirs]
        found = verify_log_dirs(dirs, OPTIONS)
        assert found.reports == tuple(verify_log_dir(path, OPTIONS) for path in dirs)
        assert [bool(report.problems) for report in found.reports] == [False, True, False]
        assert found.exit_code is ExitCode.FOUND
        assert [tree(Path(path)) for path in dirs] == before

    def test_the_page_sums_up_by_directory_and_names_what_is_wrong(self, dirs: list[str]) -> None:
        result = typed("verify", *dirs)
        assert result.exit_code == ExitCode.FOUND
        for words in ("Verified: 3 log directories", "problems in 1 log directory", f"\n{dirs[1]}\n"):
            assert words in result.output
        assert f"\n{dirs[0]}\n" not in result.output
        assert typed("verify", dirs[0], dirs[2]).exit_code == ExitCode.DONE

    def test_the_document_has_a_report_for_each(self, dirs: list[str]) -> None:
        report = json.loads(typed("verify", *dirs, "--json").stdout)["report"]
        assert report["reports"][1]["problems"]

    def test_a_directory_twice_or_a_plan_among_them_is_refused(self, dirs: list[str], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="given twice"):
            verify_log_dirs([dirs[0], dirs[0]], OPTIONS)
        assert typed("verify", dirs[0], str(tmp_path / "a.krplan")).exit_code == ExitCode.USAGE


def test_two_directories_of_one_broker_are_held_against_each_other(dirs: list[str], tmp_path: Path) -> None:
    again = broker_dir(tmp_path, 9, whole()).rename(tmp_path / "b1-more")
    (again / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    two = check([dirs[0], str(again)], OPTIONS)
    rules = [{finding.rule for finding in one.findings} for one in two.log_dirs]
    alone = {finding.rule for finding in check([dirs[0]], OPTIONS).log_dirs[0].findings}
    assert "KR603" in rules[0] - alone


def test_dump_takes_folders_of_several_brokers(dirs: list[str]) -> None:
    shown = CliRunner().invoke(app, ["dump", *(f"{path}/t-0" for path in dirs)])
    assert all(f'file="{path}/t-0/' in shown.output for path in dirs)
