"""A log that loses its damaged bytes, by itself: each state on the way, and each file that somebody else changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.commit import mend
from krepair.commit.begin import Target, begin
from krepair.commit.executor import KeptFile
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import FileState, Intent
from krepair.commit.mend import CUT, MendLogs
from krepair.commit.status import ChangeState, status_in
from krepair.errors import KrepairError, RefusedError, StalePlanError, VerifyFailedError
from krepair.logdir.fingerprint import digest_bytes, digest_content
from krepair.plan.model import PartitionPlan
from tests.commit.scene import PLAN_ID, UnsyncedDisk, fingerprint, mended, name, put, tree
from tests.durable.disks import RecordingDisk
from tests.ops.stops import each_stop

LOG, INDEX, TIMES, ABORTED = (name(100, end) for end in (".log", ".index", ".timeindex", ".txnindex"))
GOOD, BAD, BEHIND = b"good" * 30, b"damage!" * 9, b"behind" * 11
NEW = {INDEX: b"front-and-rest", TIMES: b"new times", ABORTED: b"new aborted"}
FRONT = 6
MENDS = MendLogs()
METHODS = ("cut", "excise")
Hand = Callable[["Torn"], object]


class Torn:
    """A segment with an index and a time index, and without a transaction index; what is to be made of it."""

    def __init__(self, root: Path, method: str) -> None:
        self.root, self.method = root, method
        self.path = root / "t-0"
        self.private = self.path / f"krepair~{PLAN_ID}"
        for place in ("stage", "keep", "out"):
            (self.private / place).mkdir(parents=True)
        self.tail = BAD if method == "cut" else BAD + BEHIND
        self.after = GOOD if method == "cut" else GOOD + BEHIND
        put(self.path / name(0), b"before", 1_000)
        put(self.path / LOG, GOOD + self.tail, 2_000, 0o604)
        put(self.path / INDEX, b"old index", 2_001)
        put(self.path / TIMES, b"old times", 2_002)
        self.before = tree(root, private=False)
        self.change = mended(self.path / LOG, method, BAD, self.after, NEW, FRONT)  # type: ignore[arg-type]
        for file, data in NEW.items():
            put(self.private / "stage" / file, data, 3_000)
        if method == "excise":
            put(self.private / "stage" / LOG, self.after, 2_000, 0o604)
        self.partition = PartitionPlan(
            topic="t",
            partition=0,
            folder="t-0",
            status="change",
            files=tuple(fingerprint(path) for path in sorted(self.path.iterdir()) if path.is_file()),
            changes=(),
        )

    def folder(self, disk: object = None) -> PartitionFolder:
        return PartitionFolder(disk or UnsyncedDisk(), str(self.root), "t-0", PLAN_ID)  # type: ignore[arg-type]

    def begin(self) -> Intent:
        return begin(Target(self.folder(), self.partition, "P1"), self.change)

    def status(self) -> ChangeState:
        partition = replace(self.partition, changes=(self.change,))
        return status_in(self.folder(), partition)[f"t-0/{LOG}"]

    def bytes_of(self, file: str) -> bytes:
        return (self.path / file).read_bytes()

    def now(self) -> object:
        """As it is, without times of indexes: those that come back are the kept ones."""
        return tree(self.root, private=False)


def cut(memory_dir: Path) -> tuple[Torn, Intent]:
    """A log that was cut, and what its journal says of that."""
    torn = Torn(memory_dir / "logs", "cut")
    intent = torn.begin()
    MENDS.go_on(torn.folder(), [intent])
    return torn, intent


@pytest.fixture(params=METHODS)
def torn(request: pytest.FixtureRequest, memory_dir: Path) -> Torn:
    return Torn(memory_dir / "logs", request.param)


def test_what_is_kept_is_told_with_its_name_size_and_digest(torn: Torn) -> None:
    digests = {file: digest_content(str(torn.path / file)) for file in (LOG, INDEX, TIMES)}
    intent, folder = torn.begin(), torn.folder()
    MENDS.go_on(folder, [intent])
    names = folder.names
    log, index, times = intent.originals
    whole = [KeptFile(names.keep(INDEX), index), KeptFile(names.keep(TIMES), times)]
    if torn.method == "cut":
        cut = FileState(name=LOG + CUT, size=len(BAD), mtime_ns=0, digest=digest_bytes(BAD))
        whole.append(KeptFile(names.keep(LOG + CUT), cut, plain=True))
    else:
        whole.append(KeptFile(names.keep(LOG), log))
    assert MENDS.kept(folder, intent) == whole
    for kept in whole:
        assert kept.original.digest == digests.get(kept.original.name, digest_bytes(BAD))
        assert (torn.path / kept.path).stat().st_size == kept.original.size


def test_cut_log_keeps_its_inode_owner_mode_and_time(memory_dir: Path) -> None:
    torn = Torn(memory_dir / "logs", "cut")
    intent = torn.begin()
    before = (torn.path / LOG).stat()
    for verb in (MENDS.go_on, partial(MENDS.go_back, committed=False)):
        verb(torn.folder(), [intent])
        after = (torn.path / LOG).stat()
        assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (
            before.st_ino,
            before.st_mode,
            before.st_mtime_ns,
        )


@pytest.mark.parametrize("method", METHODS)
def test_stopped_at_every_call_its_index_is_true_of_its_log_and_the_disk_tells_how_far_it_came(
    memory_dir: Path, method: str
) -> None:
    """How it ends from there: ``test_every_kind``."""
    for stop in each_stop():
        torn = Torn(memory_dir / f"{stop.number}", method)
        intent = torn.begin()
        with stop as disk:
            MENDS.go_on(torn.folder(disk), [intent])
        log = torn.bytes_of(LOG)
        assert log in {GOOD + torn.tail, torn.after}
        index = torn.bytes_of(INDEX)
        if method == "cut":
            assert index in {b"old index", NEW[INDEX]}
        else:  # the whole new index is true of the new log only
            assert index in (
                {b"old index", NEW[INDEX][:FRONT]} if log != torn.after else {NEW[INDEX][:FRONT], NEW[INDEX]}
            )
        folder = torn.folder()
        assert MENDS.is_committed(folder, intent) == (log == torn.after)
        # The front beside the new log is a state of both ways; of a change that is done it tells of an undo.
        front = method == "excise" and index == NEW[INDEX][:FRONT]
        assert MENDS.is_back(folder, intent) == (log != torn.after or front)
        assert MENDS.can_go_on(folder, intent)
    assert stop.number > 8


def test_cut_bytes_are_kept_whole_before_anything_goes(memory_dir: Path) -> None:
    torn = Torn(memory_dir / "logs", "cut")
    disk = RecordingDisk(UnsyncedDisk())
    MENDS.go_on(torn.folder(disk), [torn.begin()])
    calls = [(call.kind, os.path.basename(call.target or call.path)) for call in disk.calls]
    named = calls.index(("rename", LOG + CUT))
    assert calls.index(("sync_file", LOG + CUT)) < named < calls.index(("truncate", LOG))
    assert ("sync_dir", "keep") in calls[named : calls.index(("truncate", LOG))]
    assert calls[-1] == ("sync_file", LOG)


@pytest.mark.parametrize("chunk", [1, 10, len(BAD), len(BAD) + 1])
def test_bytes_are_copied_piece_by_piece(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(mend, "_CHUNK_BYTES", chunk)
    torn, intent = cut(memory_dir)
    assert (torn.private / "keep" / (LOG + CUT)).read_bytes() == BAD
    MENDS.go_back(torn.folder(), [intent], committed=True)
    assert torn.now() == torn.before


# -- what somebody else did ------------------------------------------------------------------------
def write(file: str, data: bytes = b"else", mtime_s: int = 9_000) -> Hand:
    return lambda torn: put(torn.path / file, data, mtime_s)


def remove(file: str) -> Hand:
    return lambda torn: (torn.path / file).unlink()


KEEP, STAGE = f"krepair~{PLAN_ID}/keep", f"krepair~{PLAN_ID}/stage"


def refused(torn: Torn, do: Callable[[], object], kind: type[KrepairError], text: str) -> None:
    """It is refused with this text, and nothing that a broker reads is changed."""
    before = torn.now()
    with pytest.raises(kind) as caught:
        do()
    assert type(caught.value) is kind
    assert text in caught.value.message
    assert torn.now() == before


@pytest.mark.parametrize(
    ("hand", "kind", "text"),
    [
        (remove(LOG), StalePlanError, LOG),
        (write(LOG), StalePlanError, LOG),
        (write(INDEX), StalePlanError, INDEX),
        (write(ABORTED), StalePlanError, ABORTED),
        (write(f"{name(0)}.swap"), StalePlanError, ".swap"),
        (remove(f"{STAGE}/{TIMES}"), RefusedError, "expected 9 bytes, found nothing"),
    ],
)
def test_it_is_not_begun_where_a_file_is_not_as_it_was(
    torn: Torn, hand: Hand, kind: type[KrepairError], text: str
) -> None:
    hand(torn)
    refused(torn, torn.begin, kind, text)


@pytest.mark.parametrize("method", METHODS)
def test_log_with_a_second_name_is_not_cut_and_may_be_replaced(memory_dir: Path, method: str) -> None:
    torn = Torn(memory_dir / "logs", method)
    os.link(torn.path / LOG, torn.path / "mine")
    if method == "cut":
        refused(torn, torn.begin, RefusedError, "has other names")
    else:
        MENDS.go_on(torn.folder(), [torn.begin()])
        assert (torn.path / "mine").read_bytes() == GOOD + BAD + BEHIND


@pytest.mark.parametrize(
    ("hand", "can_go_on", "kind", "text"),
    [
        (write(LOG), False, StalePlanError, "changed while the apply was interrupted"),
        (write(INDEX), True, StalePlanError, "changed while the apply was interrupted"),
        (write(f"{STAGE}/{TIMES}"), False, VerifyFailedError, "is not the file that krepair made"),
        (remove(f"{STAGE}/{ABORTED}"), False, VerifyFailedError, "is not the file that krepair made"),
    ],
)
def test_interrupted_mend_does_not_go_over_what_somebody_else_wrote(
    torn: Torn, hand: Hand, can_go_on: bool, kind: type[KrepairError], text: str
) -> None:
    intent = torn.begin()
    hand(torn)
    folder = torn.folder()
    assert MENDS.can_go_on(folder, intent) is can_go_on
    log = torn.bytes_of(LOG)
    with pytest.raises(kind, match=text):
        MENDS.go_on(folder, [intent])
    assert torn.bytes_of(LOG) == log


def test_bytes_that_are_not_those_of_the_plan_are_not_cut(memory_dir: Path) -> None:
    torn = Torn(memory_dir / "logs", "cut")
    intent = torn.begin()
    found = (torn.path / LOG).stat()
    with open(torn.path / LOG, "r+b") as file:
        file.seek(len(GOOD))
        file.write(b"X")
    os.utime(torn.path / LOG, ns=(found.st_mtime_ns, found.st_mtime_ns))
    with pytest.raises(
        StalePlanError, match=f"its bytes from position {len(GOOD)} on are not those of the plan"
    ):
        MENDS.go_on(torn.folder(), [intent])
    assert torn.bytes_of(LOG) == GOOD + b"X" + BAD[1:]


def said_by(call: Callable[[], object]) -> str:
    try:
        call()
    except StalePlanError as error:
        return str(error)
    return ""


def append(file: str) -> Hand:
    def do(torn: Torn) -> None:
        with open(torn.path / file, "ab") as opened:
            opened.write(b"new")

    return do


@pytest.mark.parametrize(
    ("hand", "text"),
    [
        (append(LOG), f"{LOG}: was written since the plan was applied"),
        (remove(LOG), f"{LOG}: is gone since the plan was applied"),
        (lambda torn: os.utime(torn.path / LOG, ns=(1, 1)), f"{LOG}: was written since the plan was applied"),
        (write(name(101)), f"{name(101)}: was written since the plan was applied"),
    ],
)
def test_undo_is_refused_where_the_log_was_written_since(torn: Torn, hand: Hand, text: str) -> None:
    intent = torn.begin()
    MENDS.go_on(torn.folder(), [intent])
    hand(torn)
    refused(torn, lambda: MENDS.check_undo(torn.folder(), intent, "committed"), StalePlanError, text)
    said = said_by(lambda: MENDS.check_undo(torn.folder(), intent, "undoing"))
    assert said == said_by(lambda: MENDS.go_back(torn.folder(), [intent], committed=True)), (
        "purge asks whether an undo can end"
    )


def test_segments_that_were_behind_it_already_do_not_stand_in_the_way(torn: Torn) -> None:
    put(torn.path / name(200), b"behind", 2_500)
    intent = torn.begin()
    MENDS.go_on(torn.folder(), [intent])
    put(torn.path / name(300), b"rolled", 2_600)
    MENDS.check_undo(torn.folder(), intent, "committed")


@pytest.mark.parametrize("end", [".index", ".log.deleted", ".log.swap"])
def test_only_a_live_log_behind_it_is_one(torn: Torn, end: str) -> None:
    intent = torn.begin()
    MENDS.go_on(torn.folder(), [intent])
    put(torn.path / name(200, end), b"", 2_500)
    MENDS.check_undo(torn.folder(), intent, "committed")


@pytest.mark.parametrize(
    ("hand", "text"),
    [
        (append(LOG), f"{LOG}: was written since the plan was applied"),
        (remove(LOG), f"{LOG}: is gone since the plan was applied"),
        (remove(f"{KEEP}/{TIMES}"), "the kept original is gone or changed"),
        (append(f"{KEEP}/{INDEX}"), "the kept original is gone or changed"),
    ],
)
def test_undo_goes_over_nothing_and_misses_nothing(torn: Torn, hand: Hand, text: str) -> None:
    intent = torn.begin()
    MENDS.go_on(torn.folder(), [intent])
    hand(torn)
    with pytest.raises(StalePlanError, match=text):
        MENDS.go_back(torn.folder(), [intent], committed=True)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("what", ["gone", "changed"])
def test_log_stays_mended_where_what_was_kept_is_not_there_any_more(
    memory_dir: Path, method: str, what: str
) -> None:
    torn = Torn(memory_dir / "logs", method)
    intent = torn.begin()
    MENDS.go_on(torn.folder(), [intent])
    kept = torn.private / "keep" / (LOG + CUT if method == "cut" else LOG)
    if what == "gone":
        kept.unlink()
    else:
        kept.write_bytes(b"other bytes")
    with pytest.raises(StalePlanError, match="gone or changed"):
        MENDS.go_back(torn.folder(), [intent], committed=True)
    assert torn.bytes_of(LOG) == torn.after


@pytest.mark.parametrize("back", [0, 5, len(BAD)])
@pytest.mark.parametrize("kept", [True, False])
def test_bytes_that_a_power_cut_left_as_zeros_are_written_again(
    memory_dir: Path, back: int, kept: bool
) -> None:
    torn, intent = cut(memory_dir)
    with open(torn.path / LOG, "ab") as file:
        file.write(BAD[:back] + bytes(len(BAD) - back))
    if not kept:
        (torn.private / "keep" / (LOG + CUT)).unlink()
    if kept or back == len(BAD):
        MENDS.go_back(torn.folder(), [intent], committed=True)
        assert torn.now() == torn.before
    else:
        with pytest.raises(StalePlanError, match="the kept bytes are gone or changed"):
            MENDS.go_back(torn.folder(), [intent], committed=True)


@pytest.mark.parametrize("back", [0, 5])
def test_bytes_that_a_power_cut_in_the_cut_left_as_zeros_come_back_with_the_time_of_the_log(
    memory_dir: Path, back: int
) -> None:
    """Size and time are the old ones, so only the bytes tell; writing them changes the time."""
    torn, intent = cut(memory_dir)
    with open(torn.path / LOG, "ab") as file:
        file.write(BAD[:back] + bytes(len(BAD) - back))
    (original, *_) = intent.originals
    os.utime(torn.path / LOG, ns=(original.mtime_ns, original.mtime_ns))
    assert torn.folder().state(LOG) == original
    MENDS.go_back(torn.folder(), [intent], committed=False)
    assert torn.now() == torn.before


def test_index_that_was_touched_by_a_broker_gives_way_to_the_kept_one(torn: Torn) -> None:
    intent = torn.begin()
    MENDS.go_on(torn.folder(), [intent])
    put(torn.path / TIMES, b"rebuilt by a broker", 9_000)
    (torn.path / ABORTED).unlink()
    MENDS.go_back(torn.folder(), [intent], committed=True)
    assert torn.now() == torn.before


def test_log_that_is_gone_is_neither_mended_nor_back(torn: Torn) -> None:
    intent, folder = torn.begin(), torn.folder()
    (torn.path / LOG).unlink()
    assert not MENDS.is_committed(folder, intent)
    assert not MENDS.is_back(folder, intent)
    assert not MENDS.can_go_on(folder, intent)
    with pytest.raises(StalePlanError, match="changed while the apply was interrupted"):
        MENDS.go_on(folder, [intent])


def test_without_a_journal_the_disk_tells_what_became_of_it(torn: Torn) -> None:
    assert torn.status() is ChangeState.PLANNED
    MENDS.go_on(torn.folder(), [torn.begin()])
    assert torn.status() is ChangeState.UNKNOWN, "what is kept was not purged"
    shutil.rmtree(torn.folder().at(torn.folder().names.keep()))
    assert torn.status() is ChangeState.PURGED
    found = (torn.path / LOG).stat()
    put(torn.path / LOG, b"x" * found.st_size, 2_000)
    assert torn.status() is ChangeState.UNKNOWN
    (torn.path / LOG).unlink()
    assert torn.status() is ChangeState.UNKNOWN
    assert ChangeState.UNKNOWN.value == "unknown"


def test_undo_whose_record_is_lost_is_told_by_its_first_steps(torn: Torn) -> None:
    intent, folder = torn.begin(), torn.folder()
    MENDS.go_on(folder, [intent])
    assert not MENDS.is_back(folder, intent)
    if torn.method == "cut":
        with (torn.path / LOG).open("ab") as file:
            file.write(BAD[:10])
        assert MENDS.is_back(folder, intent)
        with (torn.path / LOG).open("ab") as file:
            file.write(b"by a broker")
    else:
        made = (torn.path / INDEX).stat()
        (torn.path / INDEX).write_bytes(NEW[INDEX][:FRONT])
        os.utime(torn.path / INDEX, ns=(made.st_mtime_ns, made.st_mtime_ns))
        assert MENDS.is_back(folder, intent)
        os.utime(torn.path / INDEX, ns=(7, 7))
    assert not MENDS.is_back(folder, intent)


@pytest.mark.parametrize("log", [GOOD + BAD + b"more", GOOD[:-1], b""])
def test_log_that_is_longer_or_shorter_than_a_cut_leaves_it_gets_no_bytes_back(
    memory_dir: Path, log: bytes
) -> None:
    torn, intent = cut(memory_dir)
    (torn.path / LOG).write_bytes(log)
    with pytest.raises(StalePlanError, match=f"{LOG}: was written since the plan was applied"):
        MENDS.go_back(torn.folder(), [intent], committed=True)
    assert torn.bytes_of(LOG) == log
