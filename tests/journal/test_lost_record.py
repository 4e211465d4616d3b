"""Without a record the files tell: the plan knows an original by its digest, and a new file by size and digest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.errors import PersonDecidesError
from krepair.journal.actions.known_by_plan import has_lost_its_time
from krepair.journal.actions.mend import CUT, MendLogs
from krepair.journal.folder import PartitionFolder
from krepair.journal.lost_record import holds, holds_the_plans, made_of, original_of
from krepair.journal.rebuild import tell
from krepair.journal.record import LogIntent
from krepair.logdir.fingerprint import digest_batches, digest_bytes
from tests.builders import NOW_MS, data
from tests.journal.scene import P1, PLAN_ID, UnsyncedDisk, fingerprint, name, put
from tests.journal.test_mend import BAD, GOOD, LOG, METHODS, TIMES, Torn

MENDS = MendLogs()


@pytest.fixture
def folder(memory_dir: Path) -> PartitionFolder:
    for place in ("stage", "keep", "out"):
        (memory_dir / "t-0" / f"krepair~{PLAN_ID}" / place).mkdir(parents=True)
    return PartitionFolder(UnsyncedDisk(), str(memory_dir), "t-0", PLAN_ID)


# -- originals and new files


def test_log_is_the_plans_by_its_batches_and_any_other_file_by_its_bytes(folder: PartitionFolder) -> None:
    log, epochs = name(100), "leader-epoch-checkpoint"
    first, second = data(100, 2).raw, data(102, 1).raw
    put(Path(folder.at(log)), first + second, 1_000)
    put(Path(folder.at(epochs)), b"0\n1\n0 0\n", 1_000)
    of_log = replace(fingerprint(Path(folder.at(log))), digest=digest_batches(folder.at(log), 100))
    of_epochs = replace(fingerprint(Path(folder.at(epochs))), digest=digest_bytes(b"0\n1\n0 0\n"))
    assert holds_the_plans(folder, log, of_log)
    assert holds_the_plans(folder, epochs, of_epochs)
    put(Path(folder.at(log)), first + data(102, 1, timestamp=NOW_MS + 1).raw, 1_000)
    put(Path(folder.at(epochs)), b"0\n1\n0 7\n", 1_000)
    assert not holds_the_plans(folder, log, of_log)
    assert not holds_the_plans(folder, epochs, of_epochs)
    assert holds_the_plans(folder, epochs, replace(of_epochs, digest="")), "the plan knows no digest"


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_copy_that_was_brought_back_is_the_original_if_it_holds_its_bytes(
    folder: PartitionFolder, kept: bool, right: bool
) -> None:
    log = name(100)
    put(Path(folder.at(log)), data(100, 2).raw, 1_000)
    planned = replace(fingerprint(Path(folder.at(log))), digest=digest_batches(folder.at(log), 100))
    known = original_of(folder, planned)
    assert known == folder.state(log)
    os.rename(folder.at(log), folder.at("other-name"))
    place = folder.names.keep(log) if kept else log
    written = data(100, 2) if right else data(100, 2, timestamp=NOW_MS + 1)
    put(Path(folder.at(place)), written.raw, 1_000)
    assert len(written.raw) == planned.size
    assert (original_of(folder, planned) == folder.state(place)) is right


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_new_file_is_found_wherever_it_is_by_its_size_and_bytes(folder: PartitionFolder, place: int) -> None:
    index = name(100, ".index")
    paths = (
        index,
        f"{index}.swap",
        f"{index}.cleaned",
        folder.names.out(index),
        folder.names.stage(index),
    )
    put(Path(folder.at(paths[place])), b"new index", 1_000)
    found = folder.state(paths[place])
    assert found is not None
    is_it = holds(folder, 9, digest_bytes(b"new index"))
    assert made_of(folder, index, is_it) == replace(found, name=index)
    assert made_of(folder, index, is_it, [found]) is None
    assert made_of(folder, index, holds(folder, 8, digest_bytes(b"new index"))) is None
    assert made_of(folder, index, holds(folder, 9, digest_bytes(b"NEW index"))) is None


# -- a log that was mended


@pytest.mark.parametrize("method", METHODS)
def test_mended_log_that_was_written_since_is_told_as_past(memory_dir: Path, method: str) -> None:
    torn = Torn(memory_dir / "logs", method)
    partition = replace(torn.partition, changes=(torn.change(),))
    assert [change.told for change in tell(torn.folder(), partition, P1)] == ["original"]
    MENDS.go_on(torn.folder(), torn.begin())
    assert [(change.told, change.why) for change in tell(torn.folder(), partition, P1)] == [("new", "")]
    with (torn.path / LOG).open("ab") as file:
        file.write(b"by a broker")
    (told,) = tell(torn.folder(), partition, P1)
    assert (told.told, told.why.partition(": ")[2]) == (
        "past",
        "was written since the plan was applied; nothing was changed",
    )


def lost_its_time(torn: Torn, intent: LogIntent) -> bool | None:
    found = MENDS.in_place(torn.folder(), intent)
    assert found is not None
    return has_lost_its_time(torn.folder(), found, torn.change())


def test_cut_log_whose_time_was_lost_in_a_copy_is_known_by_the_bytes_of_the_plan(memory_dir: Path) -> None:
    torn = Torn(memory_dir / "logs", "cut")
    intent, log = torn.begin(), torn.path / LOG
    MENDS.go_on(torn.folder(), intent)
    kept = torn.private / "keep" / (LOG + CUT)
    assert lost_its_time(torn, intent) is None, "it has its time"
    os.utime(log, ns=(1, 1))
    os.utime(kept, ns=(2, 2))
    assert lost_its_time(torn, intent) is True
    found = MENDS.in_place(torn.folder(), intent)
    assert found is not None
    assert has_lost_its_time(torn.folder(), found, None) is None, "nobody knows the bytes"
    os.utime(kept, ns=(intent.original.mtime_ns, intent.original.mtime_ns))
    assert lost_its_time(torn, intent) is None, "it will be given back"
    log.write_bytes(b"G" + GOOD[1:] + BAD)
    assert lost_its_time(torn, intent) is False
    log.unlink()
    assert lost_its_time(torn, intent) is None


def test_log_of_a_swap_that_a_broker_began_is_not_held_against_a_digest_of_its_bytes(
    folder: PartitionFolder,
) -> None:
    swap = f"{name(100)}.swap"
    put(Path(folder.at(swap)), data(100, 2).raw, 1_000)
    planned = replace(fingerprint(Path(folder.at(swap))), digest=digest_batches(folder.at(swap), 100))
    assert holds_the_plans(folder, swap, planned)


@pytest.mark.parametrize("method", METHODS)
def test_mended_log_of_which_an_original_is_gone_cannot_be_taken_back(memory_dir: Path, method: str) -> None:
    torn = Torn(memory_dir / "logs", method)
    partition = replace(torn.partition, changes=(torn.change(),))
    MENDS.go_on(torn.folder(), torn.begin())
    gone = torn.private / "keep" / TIMES
    gone.unlink()
    (told,) = tell(torn.folder(), partition, P1)
    assert (told.told, told.why) == ("past", f"{gone}: is gone")


def test_log_that_is_cut_without_its_indexes_is_half_done_or_a_persons_to_decide(memory_dir: Path) -> None:
    torn = Torn(memory_dir / "logs", "cut")
    partition = replace(torn.partition, changes=(torn.change(),))
    MENDS.go_on(torn.folder(), torn.begin())
    os.rename(torn.path / TIMES, torn.private / "stage" / TIMES)
    (told,) = tell(torn.folder(), partition, P1)
    assert (told.told, told.why, len(told.records)) == ("half", "", 2)
    (torn.private / "keep" / (LOG + CUT)).unlink()
    with pytest.raises(PersonDecidesError, match=r"it is half done, and .* is neither kept nor in its place"):
        tell(torn.folder(), partition, P1)
