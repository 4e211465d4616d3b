"""A configuration of another broker proves nothing of this one: facts refuse it, and a plan keeps what needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.logdir.view import read_log_dir
from krepair.ops.log_dirs_given import other_dirs
from krepair.ops.show import show_view
from tests.hostile.verbs import run
from tests.ops.replicas_read import applied, broker, cleaned, verbs

pytestmark = pytest.mark.replicas


@pytest.fixture
def b3(tmp_path: Path) -> Path:
    return broker(tmp_path, 3, cleaned())


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
    broker(tmp_path, 1, cleaned())
    plan = applied(verbs(tmp_path, "compact", f"2={broker(tmp_path, 2, cleaned())}", replicas="1,2"))
    lines = [line for section in show_view(plan, "PLAN").sections for line in section.lines]
    (line,) = (line for line in lines if line.startswith("Evidence for 1 partition: "))
    said = "that these are all log directories of broker 2 is your word"
    assert said in line
    assert said.replace("broker 2", "broker 1") in line, "nobody has said anything of those of this broker"


@pytest.mark.parametrize("by", ["config", "its own side"])
def test_what_was_said_of_this_brokers_log_directories_is_no_more_asked_for(by: str, tmp_path: Path) -> None:
    own, others = broker(tmp_path, 1, cleaned()), [f"2={broker(tmp_path, 2, cleaned())}"]
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
