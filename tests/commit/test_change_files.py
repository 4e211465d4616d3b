"""Files that are replaced, made, removed or set aside, and an empty segment at the log end: what somebody else did.

How each ends wherever it is stopped: ``test_every_kind``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.commit.begin import Target, begin
from krepair.commit.change_files import ChangeFiles
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Intent
from krepair.errors import KrepairError, RefusedError, StalePlanError, VerifyFailedError
from krepair.plan.model import Change, PartitionPlan, ReplaceFile
from tests.commit.scene import (
    FOLDER,
    PLAN_ID,
    UnsyncedDisk,
    fingerprint,
    name,
    put,
    replaced,
    rolled,
    set_aside,
    tree,
    whole,
)

OLD, NONE, GOES = name(0, ".timeindex"), name(10, ".timeindex"), name(0, ".log.deleted")
SEGMENT = LOG, INDEX, TIMES = tuple(name(100, end) for end in (".log", ".index", ".timeindex"))
EMPTY = tuple(name(200, end) for end in (".index", ".timeindex", ".log"))
NEW = b"new bytes"
KEEP, STAGE = f"krepair~{PLAN_ID}/keep", f"krepair~{PLAN_ID}/stage"
FILES = ChangeFiles()
ASIDE, ROLL = set_aside(100, SEGMENT), rolled(200)


def change_of(file: str) -> ReplaceFile:
    """It becomes ``NEW``, or goes."""
    return replaced(Path(FOLDER) / file, None if file.endswith(".deleted") else NEW)


class Site:
    """A partition with a file to replace, one to make, one to remove, a segment to set aside, and room behind it."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / FOLDER
        for place in ("stage", "keep", "out"):
            (self.path / f"krepair~{PLAN_ID}" / place).mkdir(parents=True)
        files = {OLD: b"old", GOES: b"gone soon", **{file: file.encode() for file in SEGMENT}}
        for number, (file, data) in enumerate(files.items()):
            put(self.path / file, data, 1_000 + number)
        for file, data in {OLD: NEW, NONE: NEW, **dict.fromkeys(EMPTY, b"")}.items():
            put(self.path / STAGE / file, data, 2_000)
        self.before = tree(root, private=False)
        self.partition = PartitionPlan(
            topic="t",
            partition=0,
            folder=FOLDER,
            status="change",
            files=tuple(fingerprint(self.path / file) for file in files),
            changes=(),
        )
        self.folder = PartitionFolder(UnsyncedDisk(), str(root), FOLDER, PLAN_ID)

    def begin(self, change: Change) -> Intent:
        return begin(Target(self.folder, self.partition, "P1"), change)

    def go_on(self, intent: Intent) -> None:
        whole(FILES.go_on(self.folder, [intent]))

    def undo(self, intent: Intent) -> None:
        whole(FILES.go_back(self.folder, [intent], committed=True))

    def done(self, change: Change) -> Intent:
        """What a change that was made began with."""
        intent = self.begin(change)
        self.go_on(intent)
        return intent

    def keep(self, file: str) -> None:
        """As an interrupted run has left it."""
        (self.path / file).rename(self.path / KEEP / file)


@pytest.fixture
def site(memory_dir: Path) -> Site:
    return Site(memory_dir / "logs")


Hand = Callable[[Site], object]


def write(file: str, data: bytes = b"by somebody else") -> Hand:
    return lambda site: put(site.path / file, data, 9_000)


def remove(file: str) -> Hand:
    return lambda site: (site.path / file).unlink()


def folder_instead(site: Site) -> None:
    (site.path / OLD).unlink()
    (site.path / OLD).mkdir()


NOT_BEGUN: list[tuple[Change, Hand, type[KrepairError], str]] = [
    (change_of(OLD), write(f"{STAGE}/{OLD}", b"short"), RefusedError, "expected 9 bytes, found 5 bytes"),
    (change_of(OLD), remove(f"{STAGE}/{OLD}"), RefusedError, "expected 9 bytes, found nothing"),
    (
        change_of(OLD),
        write(f"{STAGE}/{OLD}", b"new BYTES"),
        VerifyFailedError,
        "its bytes are no longer those of the plan",
    ),
    (change_of(OLD), folder_instead, StalePlanError, "expected a regular file"),
    (
        change_of(name(5, ".log.deleted")),
        write("another"),
        RefusedError,
        "is to be changed, but the plan has no such file",
    ),
    (
        set_aside(100, (*SEGMENT, name(100, ".txnindex"))),
        write("another"),
        RefusedError,
        "the plan has no such file",
    ),
]
for file in EMPTY:
    NOT_BEGUN += [
        (
            ROLL,
            write(f"{STAGE}/{file}", b"x"),
            RefusedError,
            f"{file}: expected 0 bytes, found 1 bytes",
        ),
        (ROLL, remove(f"{STAGE}/{file}"), RefusedError, f"{file}: expected 0 bytes, found nothing"),
        (ROLL, write(file, b""), StalePlanError, f"{file}: was not there when the plan was made"),
    ]


@pytest.mark.parametrize(("change", "hand", "kind", "text"), NOT_BEGUN)
def test_it_is_not_begun_where_files_are_not_as_planned(
    site: Site, change: Change, hand: Hand, kind: type[KrepairError], text: str
) -> None:
    hand(site)
    with pytest.raises(kind, match=text):
        site.begin(change)


CHANGED = "changed while the apply was interrupted"
NOT_OURS = "is not the file that krepair made"


@pytest.mark.parametrize(
    ("change", "hand", "can_go_on", "kind", "text"),
    [
        (change_of(OLD), write(OLD), True, StalePlanError, CHANGED),
        (change_of(OLD), remove(OLD), True, StalePlanError, CHANGED),
        (change_of(NONE), write(NONE), True, StalePlanError, CHANGED),
        (change_of(GOES), write(GOES), False, StalePlanError, CHANGED),
        (change_of(OLD), write(f"{STAGE}/{OLD}"), False, VerifyFailedError, NOT_OURS),
        (change_of(OLD), remove(f"{STAGE}/{OLD}"), False, VerifyFailedError, NOT_OURS),
        *((ASIDE, write(file), False, StalePlanError, f"{file}: {CHANGED}") for file in SEGMENT),
    ],
)
def test_nothing_goes_over_what_somebody_else_wrote(
    site: Site, change: Change, hand: Hand, can_go_on: bool, kind: type[KrepairError], text: str
) -> None:
    intent = site.begin(change)
    hand(site)
    before = tree(site.root, private=False)
    assert FILES.can_go_on(site.folder, intent) is can_go_on
    with pytest.raises(kind, match=text) as caught:
        site.go_on(intent)
    assert type(caught.value) is kind
    assert tree(site.root, private=False) == before


@pytest.mark.parametrize("file", SEGMENT)
def test_file_that_came_back_while_it_is_kept_is_not_taken_out(site: Site, file: str) -> None:
    intent = site.begin(ASIDE)
    site.keep(file)
    write(file)(site)
    with pytest.raises(StalePlanError, match=f"{file}: {CHANGED}"):
        site.go_on(intent)
    assert (site.path / file).read_bytes() == b"by somebody else"


CALLS: dict[str, Callable[[Site, Intent], object]] = {
    "committed": lambda site, intent: FILES.check_undo(site.folder, intent, "committed"),
    "undoing": lambda site, intent: FILES.check_undo(site.folder, intent, "undoing"),
    "undo": lambda site, intent: site.undo(intent),
}


@pytest.mark.parametrize(
    ("change", "file", "calls"),
    [
        *((change_of(file), file, tuple(CALLS)) for file in (OLD, NONE, GOES)),
        *((ROLL, file, ("committed",)) for file in EMPTY),
        (ASIDE, LOG, ("undo",)),
    ],
)
def test_file_that_was_written_since_stays(
    site: Site, change: Change, file: str, calls: tuple[str, ...]
) -> None:
    intent = site.done(change)
    write(file)(site)
    before = tree(site.root)
    for call in calls:
        with pytest.raises(StalePlanError, match=f"{file}: was written since the plan was applied"):
            CALLS[call](site, intent)
    assert tree(site.root) == before


# -- replaced, made, removed -------------------------------------------------------------------------------
def test_file_that_goes_and_is_gone_already_without_being_kept_is_left_so(site: Site) -> None:
    intent = site.begin(change_of(GOES))
    (site.path / GOES).unlink()
    assert not FILES.can_go_on(site.folder, intent)
    FILES.go_back(site.folder, [intent], committed=False)
    assert not (site.path / GOES).exists()


def test_replaced_file_whose_original_was_lost_is_refused(site: Site) -> None:
    intent = site.done(change_of(OLD))
    (site.path / KEEP / OLD).unlink()
    with pytest.raises(RefusedError, match="the original is not kept although it was replaced"):
        site.go_on(intent)
    with pytest.raises(StalePlanError, match="the kept original is gone or changed, so the new file stays"):
        site.undo(intent)
    assert (site.path / OLD).read_bytes() == NEW


@pytest.mark.parametrize("file", [OLD, GOES])
def test_what_was_kept_of_a_change_that_never_happened_goes(site: Site, file: str) -> None:
    intent, kept = site.begin(change_of(file)), site.path / KEEP / file
    os.link(site.path / file, kept)
    FILES.go_back(site.folder, [intent], committed=False)
    assert not kept.exists()
    assert tree(site.root, private=False) == site.before


def test_file_that_a_broker_deleted_before_it_was_kept_needs_nothing(site: Site) -> None:
    intents = [site.begin(change_of(OLD)), site.begin(change_of(GOES))]
    os.link(site.path / OLD, site.path / KEEP / OLD)
    (site.path / GOES).unlink()
    FILES.go_back(site.folder, intents, committed=False)
    assert not (site.path / KEEP / OLD).exists()
    assert not (site.path / GOES).exists()


# -- a segment that is set aside ---------------------------------------------------------------------------
def test_segment_is_out_once_its_log_is_and_on_its_way_back_with_its_first_file(site: Site) -> None:
    intent, folder = site.done(ASIDE), site.folder
    assert (FILES.is_committed(folder, intent), FILES.is_back(folder, intent)) == (True, False)
    (site.path / KEEP / INDEX).rename(site.path / INDEX)
    assert (FILES.is_committed(folder, intent), FILES.is_back(folder, intent)) == (True, True)
    (site.path / KEEP / LOG).rename(site.path / LOG)
    assert (FILES.is_committed(folder, intent), FILES.is_back(folder, intent)) == (False, True)


def test_log_that_is_gone_and_not_kept_is_not_set_aside(site: Site) -> None:
    intent = site.begin(ASIDE)
    (site.path / LOG).unlink()
    assert not FILES.is_committed(site.folder, intent)
    assert not FILES.can_go_on(site.folder, intent)


def test_each_file_of_the_segment_has_to_be_there_or_kept(site: Site) -> None:
    intent = site.begin(ASIDE)
    site.keep(INDEX)
    assert FILES.can_go_on(site.folder, intent)
    (site.path / TIMES).unlink()
    assert not FILES.can_go_on(site.folder, intent)


def test_file_of_the_segment_that_is_gone_already_but_kept_is_passed_over(site: Site) -> None:
    intent = site.begin(ASIDE)
    site.keep(INDEX)
    site.go_on(intent)
    assert FILES.is_committed(site.folder, intent)


def test_index_of_the_name_that_a_broker_made_gives_way(site: Site) -> None:
    intent = site.done(ASIDE)
    write(INDEX)(site)
    site.undo(intent)
    assert tree(site.root, private=False) == site.before


def test_nothing_of_the_segment_comes_back_where_a_kept_file_is_gone(site: Site) -> None:
    intent = site.done(ASIDE)
    (site.path / KEEP / TIMES).unlink()
    before = tree(site.root)
    with pytest.raises(StalePlanError, match=f"{TIMES}: is not the original of"):
        site.undo(intent)
    assert tree(site.root) == before


# -- an empty segment at the log end -----------------------------------------------------------------------
@pytest.mark.parametrize("file", EMPTY)
def test_empty_segment_of_which_a_file_is_gone_may_be_taken_back(site: Site, file: str) -> None:
    intent = site.done(ROLL)
    (site.path / file).unlink()
    FILES.check_undo(site.folder, intent, "committed")


def test_index_that_a_broker_made_larger_before_the_log_came_stays_when_the_rest_is_taken_back(
    site: Site,
) -> None:
    intent, index = site.done(ROLL), name(200, ".index")
    (site.path / name(200)).rename(site.path / STAGE / name(200))
    write(index)(site)
    FILES.go_back(site.folder, [intent], committed=False)
    left = tree(site.root, private=False)
    assert left.keys() - site.before.keys() == {f"{FOLDER}/{index}"}
    assert (site.path / index).read_bytes() == b"by somebody else"
