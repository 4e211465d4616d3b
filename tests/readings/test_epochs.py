"""Leader epochs read again: what the merge makes is right, one wrong number or a planted defect is not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from krepair.ops.verify import verify_plan
from krepair.rules import epochs
from krepair.rules.epochs import Rise
from tests import builders
from tests.readings.scenes import FOLDER, Applied, applied, options, read, read_instead

NAME = "leader-epoch-checkpoint"
GOOD = b"0\n4\n0 0\n2 6\n3 9\n7 12\n"
DELETE, COMPACT = (("cleanup.policy", policy) for policy in ("delete", "compact"))


def made(root: Path, original: bytes | None, **given: object) -> Applied:
    """Epochs 0, 2, 3 and 5 from offsets 0, 6, 9 and 12 in two segments; epoch 7 has led without data."""
    directory = builders.LogDir(root)
    directory.partition("t").segment(
        builders.data(0, 3, leader_epoch=0),
        builders.data(3, 3, leader_epoch=0),
        builders.data(6, 3, leader_epoch=2),
    ).segment(builders.data(9, 3, leader_epoch=3))
    directory.write()
    (root / FOLDER / NAME).unlink(missing_ok=True)
    if original is not None:
        (root / FOLDER / NAME).write_bytes(original)
    return applied(root, options("epochs", settings=(DELETE,), **given))


@pytest.mark.parametrize(
    "original",
    [None, b"", b"0\n5\n0 0\n2 5\n3 9\n7 12\n9 99\n", b"0\n3\n0 0\n2 6\n7 12\n", b"0\n2\n0 0\n7 12"],
)
def test_what_the_merge_makes_is_right(tmp_path: Path, original: bytes | None) -> None:
    done = made(tmp_path / "logs", original)
    assert (done.folder / NAME).read_bytes().splitlines()[2:5] == [b"0 0", b"2 6", b"3 9"]
    assert done.problems() == []
    assert verify_plan(done.plan, done.options).problems == ()


WRONG = {
    "an entry of the log is missing": (b"0\n3\n0 0\n3 9\n7 12\n", "offset 6 is of epoch 2"),
    "a start too late": (b"0\n4\n0 0\n2 7\n3 9\n7 12\n", "offset 6 is of epoch 2"),
    "a start too early": (b"0\n4\n0 0\n2 5\n3 9\n7 12\n", "offset 5 is of epoch 0"),
    "another epoch": (b"0\n4\n0 0\n1 6\n3 9\n7 12\n", "offset 6 is of epoch 2"),
    "an invented one": (b"0\n5\n0 0\n2 6\n3 9\n7 12\n", "was expected"),
    "an invented one at the end": (b"0\n5\n0 0\n2 6\n3 9\n6 11\n7 12\n", "offset 11 is of epoch 3"),
    "an invented one without data": (b"0\n4\n0 0\n2 6\n3 9\n8 12\n", "is neither in the log nor"),
    "a negative epoch": (b"0\n5\n-2 -1\n0 0\n2 6\n3 9\n7 12\n", "epoch -2 starts at -1: a negative number"),
    "a negative offset": (b"0\n4\n0 -1\n2 6\n3 9\n7 12\n", "epoch 0 starts at -1: a negative number"),
    "a negative epoch alone": (b"0\n4\n-1 0\n2 6\n3 9\n7 12\n", "epoch -1 starts at 0: a negative number"),
    "past the end": (b"0\n5\n0 0\n2 6\n3 9\n7 12\n8 13\n", "past the log end 12"),
    "an original one is gone": (b"0\n3\n0 0\n2 6\n3 9\n", "epoch 7 at 12 of the original is gone"),
    "no epoch 0": (b"0\n3\n2 6\n3 9\n7 12\n", "offset 0 is of epoch 0"),
    "a wrong order": (b"0\n4\n0 0\n3 9\n2 6\n7 12\n", "that grow"),
    "not as a broker writes it": (b"0\n4\n0  0\n2 6\n3 9\n7 12\n", "the bytes that a broker writes"),
    "cut": (GOOD[:-1], "a line end"),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_thing_is_found(tmp_path: Path, name: str) -> None:
    done = made(tmp_path / "logs", b"0\n4\n0 0\n2 5\n3 9\n7 12\n")
    work = done.work(NAME)
    assert (done.folder / NAME).read_bytes() == GOOD
    assert read_instead(work, GOOD) == ()
    data, words = WRONG[name]
    found = read_instead(work, data)
    assert any(words in text for text in found), found


def test_other_bytes_than_the_planned_ones_are_found(tmp_path: Path) -> None:
    done = made(tmp_path / "logs", None)
    (done.folder / NAME).write_bytes(b"0\n1\n0 0\n")
    assert any("is not the file of" in text for text in read(done.work(NAME)))


def test_a_defect_of_the_first_implementation_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = epochs.epochs_of_log

    def late(*given: object, **named: object) -> epochs.LogEpochs:
        log = real(*given, **named)  # type: ignore[arg-type]
        return log._replace(
            rises=tuple(Rise(one.epoch, one.first_offset + 1, one.before) for one in log.rises)
        )

    monkeypatch.setattr(epochs, "epochs_of_log", late)
    done = made(tmp_path / "logs", None)
    assert done.problems() != []
    assert verify_plan(done.plan, done.options).problems != ()


@pytest.mark.parametrize("seed", range(3))
def test_any_history_merged_with_any_log_is_right(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    changed = 0
    for number in range(14):
        root = tmp_path / str(number)
        directory = builders.LogDir(root)
        partition = directory.partition("t")
        offset, epoch = rng.choice([0, 0, 5]), rng.randint(0, 2)
        for _ in range(rng.randint(1, 3)):
            batches = []
            for _ in range(rng.randint(1, 4)):
                batches.append(builders.data(offset, rng.randint(1, 3), leader_epoch=epoch))
                offset = batches[-1].last_offset + 1 + rng.choice([0, 0, 0, 2])
                epoch += rng.choice([0, 0, 1, 2])
            partition.segment(*batches)
        starts = {FOLDER: rng.randint(0, offset)} if rng.random() < 0.4 else {}
        directory.write(log_starts=starts)
        lines = sorted(
            (rng.randint(0, epoch + 1), rng.randint(0, offset + 1)) for _ in range(rng.randint(0, 5))
        )
        text = "\n".join(["0", str(len(lines)), *(f"{one} {start}" for one, start in lines), ""])
        (root / FOLDER / NAME).unlink(missing_ok=True)
        if rng.random() < 0.8:
            (root / FOLDER / NAME).write_bytes(text.encode()[: rng.choice([None, None, None, -1, -2])])
        version = rng.choice(["", "2.2.1", "3.9.2"])
        chosen = options("epochs", settings=(rng.choice([DELETE, COMPACT]),), broker_version=version)
        done = applied(root, chosen)
        assert done.problems() == [], (number, text)
        changed += any(one.folder == FOLDER and one.changes for one in done.plan.partitions)
    assert changed >= 8
