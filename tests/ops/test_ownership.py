"""Files that the broker's user cannot use are named with what to type; a directory of one owner says nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.logdir.view import read_log_dir
from krepair.start.ownership import Node, lacks, nodes_of, ownership_findings, usual_owner
from tests.journal import txfixture

KAFKA, GROUP, OTHER = 64_001, 64_002, 64_003


def node(name: str, uid: int, gid: int, mode: int, partition: str = "t-0") -> Node:
    return Node(partition, name, uid, gid, mode)


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (node("a", KAFKA, GROUP, 0o600), ""),
        (node("a", KAFKA, GROUP, 0o400), "w"),
        (node("a", KAFKA, GROUP, 0o066), "rw"),  # the owner's bits count alone
        (node("a", 0, GROUP, 0o660), ""),
        (node("a", 0, GROUP, 0o640), "w"),
        (node("a", 0, 0, 0o666), ""),
        (node("a", 0, 0, 0o644), "w"),
        (node("", KAFKA, GROUP, 0o600)._replace(is_folder=True), "x"),
        (node("", 0, 0, 0o755)._replace(is_folder=True), "w"),
    ],
)
def test_what_a_user_may_not_do_follows_from_owner_group_and_mode(found: Node, missing: str):
    assert lacks(found, KAFKA, GROUP) == missing
    assert not lacks(found, 0, 0)


def test_the_owner_of_most_files_counts_and_not_that_of_the_directory():
    nodes = [node("a", 0, 0, 0o600), *(node(str(number), KAFKA, GROUP, 0o600) for number in range(3))]
    assert usual_owner(nodes) == (KAFKA, GROUP)


def test_files_restored_as_root_are_one_finding_per_folder_with_the_command(tmp_path: Path):
    view = read_log_dir(str(txfixture.write_log_dir(tmp_path / "logs")))
    good = [node(str(number), KAFKA, GROUP, 0o644, "o-0") for number in range(5)]
    bad = [node(name, 0, 0, 0o400) for name in ("one.log", "two.log")]
    (finding,) = ownership_findings(view, [*good, *bad])
    assert (finding.rule, finding.partition, finding.file) == ("KR605", "t-0", "one.log")
    path = f"{view.path}/t-0/one.log"
    assert finding.evidence == (
        f"one.log and 1 more file: root:root 0400; most files are of {KAFKA}:{GROUP}, who has no write and no read; "
        f"chown {KAFKA}:{GROUP} {path} && chmod u+w {path}"
    ).replace("no write and no read", "no read and no write")


def test_a_log_directory_of_one_owner_has_no_finding_and_every_file_is_looked_at(tmp_path: Path):
    root = txfixture.write_log_dir(tmp_path / "logs")
    view = read_log_dir(str(root))
    nodes = list(nodes_of(view))
    assert not list(ownership_findings(view, nodes))
    there = {str(path.relative_to(root)) for path in root.rglob("*")}
    assert {f"{one.partition}/{one.name}".strip("/") for one in nodes} - {""} == there


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_lock_and_a_checkpoint_of_root_are_named_where_a_broker_runs_as_another_user(tmp_path: Path):
    root = txfixture.write_log_dir(tmp_path / "logs")
    for path in (root, *root.rglob("*")):
        os.chown(path, KAFKA, GROUP)
    for name in (".lock", "recovery-point-offset-checkpoint"):
        (root / name).touch()
        os.chown(root / name, 0, 0)
        (root / name).chmod(0o600)
    view = read_log_dir(str(root))
    (finding,) = ownership_findings(view, nodes_of(view))
    assert finding.file == ".lock"
    assert "and 1 more file" in finding.evidence
