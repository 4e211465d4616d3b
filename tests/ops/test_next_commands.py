"""What ``plan`` says is to be typed next works when it is typed: no refused command again, and nothing of it twice."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from krepair.errors import ExitCode
from krepair.logdir.lock import Holder
from krepair.ops import plan as plan_module
from krepair.ops.room import planned_view
from krepair.ops.show import plan_command, show_view
from krepair.plan.planfile import read_plan
from krepair.plan.view import View
from tests.compaction.directories import Verbs
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
