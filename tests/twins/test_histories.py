"""Whatever the logs and their neighbouring files contain, krepair's derived files equal those of the twins."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.durable.tree import without_links
from krepair.formats import batch_v2, producer_snapshot
from krepair.formats.checkpoint import decode_offsets
from krepair.formats.producer_snapshot import ProducerEntry
from krepair.rules.checkpoints import KINDS, CheckpointKind, repair_offsets
from tests import builders, encoders, strategies
from tests.builders import NOW_MS, abort, commit, data
from tests.readings.scenes import FOLDER, applied, options
from tests.twins.checkpoints import checkpoint_problems
from tests.twins.logs import LogPath, _marker_type, parts_of
from tests.twins.of_plan import twin_problems

EPOCHS = "leader-epoch-checkpoint"
VERSIONS = ["", "2.2.1", "2.4.1", "3.9.2"]


@pytest.mark.parametrize("seed", range(3))
def test_leader_epochs_of_any_history_and_any_log(tmp_path: Path, seed: int) -> None:
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
        (root / FOLDER / EPOCHS).unlink(missing_ok=True)
        if rng.random() < 0.8:
            (root / FOLDER / EPOCHS).write_bytes(text.encode()[: rng.choice([None, None, None, -1, -2])])
        policy = ("cleanup.policy", rng.choice(["delete", "compact"]))
        done = applied(
            root, options("epochs", settings=(policy,), broker_version=rng.choice(["", "2.2.1", "3.9.2"]))
        )
        assert twin_problems(done.plan) == [], (number, text)
        changed += any(one.folder == FOLDER and one.changes for one in done.plan.partitions)
    assert changed >= 8


def without_snapshots(log_dir: Path, first: int = 0) -> Path:
    """Only so many of the snapshots stay."""
    for path in sorted((log_dir / FOLDER).glob("*.snapshot"))[first:]:
        path.unlink()
    return log_dir


@pytest.mark.parametrize("seed", range(8))
def test_producers_of_any_history(tmp_path: Path, seed: int) -> None:
    history = strategies.history(
        seed, strategies.Shape(segments=1 + seed % 4, steps=12, open_at_end=seed % 2 == 0)
    )
    directory = builders.LogDir(tmp_path / "logs")
    history.fill(directory.partition("t"))
    root = without_snapshots(directory.write(), seed % 3)
    chosen = options("snapshots", broker_version=VERSIONS[seed % 4], now_ms=history.shape.now_ms)
    assert twin_problems(applied(root, chosen).plan) == []


@pytest.mark.parametrize("seed", range(12))
def test_many_batches_of_few_producers(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    offset = 0
    directory = builders.LogDir(tmp_path / "logs")
    partition = directory.partition("t")
    for _ in range(3):
        batches: list[builders.Batch] = []
        for _ in range(60):
            pid, epoch = chance.randrange(3), chance.choice((1, 1, 1, 2))
            kind = chance.choice("dddtttmmm")
            if kind == "m":
                end, coordinator = chance.choice((commit, abort)), chance.randrange(3)
                batches.append(end(offset, pid=pid, epoch=epoch, coordinator_epoch=coordinator))
            else:
                count, sequence = chance.randrange(1, 4), chance.randrange(9)
                batches.append(data(offset, count, pid=pid, epoch=epoch, sequence=sequence, txn=kind == "t"))
            offset = batches[-1].last_offset + 1
        partition.segment(*batches)
    root = without_snapshots(directory.write())
    done = applied(root, options("snapshots", broker_version=["", "2.2.1", "3.9.2"][seed % 3]))
    assert done.part.changes
    assert twin_problems(done.plan) == []


def test_a_replay_begins_with_the_producers_of_an_earlier_snapshot(tmp_path: Path) -> None:
    """The log of some of them is gone; one that had expired then is not known any more."""
    directory = builders.LogDir(tmp_path / "logs")
    directory.partition("t").segment(data(0, 3, pid=7, sequence=0)).segment(data(3, 2, pid=8), data(5))
    root = without_snapshots(directory.write())
    known = [
        ProducerEntry(
            producer_id=pid, producer_epoch=0, last_sequence=4, last_offset=2, offset_delta=0,
            timestamp=NOW_MS - age, coordinator_epoch=-1, current_txn_first_offset=-1,
        )
        for pid, age in ((7, 0), (20, 1000), (21, 8 * 86_400_000))
    ]  # fmt: skip
    (root / FOLDER / "00000000000000000003.snapshot").write_bytes(encoders.encode_snapshot(known))
    (root / FOLDER / "00000000000000000006.snapshot").write_bytes(b"damaged")
    done = applied(root, options("snapshots"))
    (name,) = (one.name for one in done.part.changes)
    table = producer_snapshot.table((done.folder / name).read_bytes())
    assert set(table[:, 0].tolist()) == {7, 8, 20}
    assert twin_problems(done.plan) == []


ENDS = {("a", 0): 10, ("a", 1): None, ("b", 0): 0, ("b", 1): 7}
TOLD = {key: -1 if end is None else end for key, end in ENDS.items()}
LINES = st.lists(
    st.one_of(
        st.builds(
            "{} {} {}".format, st.sampled_from(["a", "b", "gone"]), st.integers(0, 1), st.integers(-2, 12)
        ),
        st.sampled_from(["", "a 0", "a 0 x", "b 0 1 2"]),
    ),
    max_size=6,
)


@given(st.sampled_from(KINDS), LINES, st.integers(-1, 1), st.sampled_from(["\n", ""]))
def test_any_checkpoint_of_the_root(kind: CheckpointKind, rows: list[str], more: int, end: str) -> None:
    old = ("\n".join(["0", str(len(rows) + more), *rows]) + end).encode()
    new = repair_offsets(kind, decode_offsets(old), ENDS).data
    assert checkpoint_problems(kind.name, old, new, TOLD) == []


# -- markers that are read all at once


RECORD_BYTES = 17


@pytest.mark.parametrize("place", range(RECORD_BYTES))
def test_marker_with_another_byte_is_read_as_by_itself(tmp_path: Path, place: int) -> None:
    whole = builders.marker(0, 1, pid=7, coordinator_epoch=5).raw
    assert len(whole) == batch_v2.HEADER_SIZE + RECORD_BYTES
    raws = []
    for offset, flip in enumerate((0, 1, 2, 0x80, 0)):
        raw = bytearray(builders.marker(offset, offset % 2, pid=7, coordinator_epoch=5).raw)
        raw[batch_v2.HEADER_SIZE + place] ^= flip
        raws.append(bytes(raw))
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(raws))
    log = LogPath(0, str(path), path.stat().st_size)
    found: list[int] = []
    for part in parts_of([log], without_links(), check_crc=False):
        found += part.marker_types(np.arange(len(part.firsts))).tolist()
    # its readers take the end of a transaction from it, and nothing from any other type
    assert [kind if kind in (0, 1) else -1 for kind in found] == [_marker_type(raw) for raw in raws]
    assert (found[0], found[-1]) == (0, 0)
