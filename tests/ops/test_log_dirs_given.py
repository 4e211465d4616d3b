"""Names that are not there, and log directories that were not named."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode, NotALogDirError, UsageError
from krepair.logdir.config import configured_log_dirs
from krepair.ops.check import check
from krepair.ops.facts import facts
from krepair.ops.groups import groups
from krepair.ops.log_dirs_given import log_dirs_asked_for
from krepair.ops.transactions import transactions
from krepair.ops.verify import verify_log_dir
from krepair.options import EngineName, Options
from tests.hostile.verbs import run


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
