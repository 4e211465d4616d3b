"""Files that the broker's user cannot use are named with what to type; a directory of one owner says nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.checks.catalogue import StartEffect, start_of
from krepair.logdir.view import read_log_dir
from krepair.start.ownership import Node, lacks, nodes_of, ownership_findings, usual_owner
from tests.builders import LogDir, data
from tests.commit import txfixture

KAFKA, GROUP, OTHER = 64_001, 64_002, 64_003
ALL = ((2, 2, 1), (3, 9, 2), (4, 3, 1))


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
    (finding,) = ownership_findings(view, [*good, *bad], ALL)
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
    assert not list(ownership_findings(view, nodes, ALL))
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
    (finding,) = ownership_findings(view, nodes_of(view), ALL)
    assert finding.file == ".lock"
    assert "and 1 more file" in finding.evidence


ACTIVE = f"{10:020d}"
"""The table was tried on brokers of 3.9.2 and 4.3.1, each with another healthy directory, and of 4.4.0 alone."""
DIRECTORY, NONE = StartEffect.DIRECTORY, StartEffect.NONE


@pytest.mark.parametrize(
    ("name", "unreadable", "unwritable"),
    [
        ("meta.properties", DIRECTORY, NONE),
        ("recovery-point-offset-checkpoint", DIRECTORY, NONE),
        ("cleaner-offset-checkpoint", DIRECTORY, NONE),
        (".lock", DIRECTORY, DIRECTORY),
        ("replication-offset-checkpoint.tmp", DIRECTORY, DIRECTORY),
        ("server.log", NONE, NONE),
        (".kafka_cleanshutdown", NONE, NONE),
        ("", DIRECTORY, DIRECTORY),
        ("t-0/", DIRECTORY, DIRECTORY),
        (f"t-0/{0:020d}.log", DIRECTORY, DIRECTORY),
        (f"t-0/{0:020d}.index", DIRECTORY, NONE),
        (f"t-0/{0:020d}.txnindex", DIRECTORY, DIRECTORY),
        (f"t-0/{ACTIVE}.timeindex", DIRECTORY, DIRECTORY),
        ("t-0/leader-epoch-checkpoint", DIRECTORY, NONE),
        ("t-0/leader-epoch-checkpoint.tmp", DIRECTORY, DIRECTORY),
        ("t-0/partition.metadata", DIRECTORY, NONE),
        (f"t-0/{20:020d}.snapshot", DIRECTORY, NONE),
    ],
)
def test_what_a_start_makes_of_a_file_that_it_cannot_open(
    name: str, unreadable: StartEffect, unwritable: StartEffect, tmp_path: Path
) -> None:
    made = LogDir(tmp_path / "logs")
    made.partition("t").segment(data(0, 10)).segment(data(10, 10))
    view = read_log_dir(str(made.write()))
    partition, _, file = name.rpartition("/")
    folder = not file
    good = [node(str(number), KAFKA, GROUP, 0o644) for number in range(5)]
    for mode, effect in ((0o700, unreadable), (0o755 if folder else 0o644, unwritable)):
        bad = node(file, 0, 0, mode, partition)._replace(is_folder=folder)
        (finding,) = ownership_findings(view, [*good, bad], [(4, 3, 1)])
        assert start_of(finding) is effect, oct(mode)


def test_a_broker_of_2_2_opens_every_index(tmp_path: Path) -> None:
    view = read_log_dir(str(txfixture.write_log_dir(tmp_path / "logs")))
    nodes = [*(node(str(number), KAFKA, GROUP, 0o644) for number in range(5)), node("x.index", 0, 0, 0o644)]
    effects = [start_of(*ownership_findings(view, nodes, [one])) for one in ((2, 2, 1), (2, 3, 0))]
    assert effects == [DIRECTORY, NONE]
