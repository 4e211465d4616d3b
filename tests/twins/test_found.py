"""Files derived from the logs: ``verify`` finds a flipped bit, independent code finds a wrong derivation.

One table, a row for each small file that a plan makes. A wrong derivation is planted in the code that makes the file:
both plan and apply make it wrongly then, so that nothing differs from the plan, and only what other code makes of the
logs can tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from krepair.errors import ExitCode
from krepair.fixes import epochs as fixes_epochs
from krepair.fixes import snapshots as snapshot_state
from krepair.fixes.recovery import make as recovery_staging
from krepair.formats import producer_snapshot
from krepair.formats.producer_snapshot import ENTRY, ProducerEntry, ProducerSnapshot
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.rewrite.indexes import segment, transactions
from krepair.rules import checkpoints
from krepair.rules import recovery as recovery_rules
from krepair.rules.snapshots import ProducerTable
from tests import builders, encoders, forgotten
from tests.ops import snapshots
from tests.readings.scenes import options
from tests.recovery import scene as recovery
from tests.twins.of_plan import twin_problems

Wrongly = Callable[[Any], Any]
"""Makes of a result of the maker a wrong one."""
FOLDER, EPOCHS = "t-0", "leader-epoch-checkpoint"


@dataclass(frozen=True)
class Derived:
    """A row of the table.

    Attributes:
        file: that is made, in the log directory.
        scene: writes a log directory in which it is wrong or missing.
        options: under which it is made.
        makers: modules or classes that hold what makes it.
        name: of that.
        wrongly: name of a mutant -> it, and who finds it.
    """

    file: str
    scene: Callable[[Path], Path]
    options: Options
    makers: tuple[Any, ...]
    name: str
    wrongly: dict[str, tuple[Wrongly, str]]


def histories(root: Path) -> Path:
    """Epochs 0, 2, 3 and 5 from offsets 0, 6, 9 and 12 in two segments; epoch 7 has led without data."""
    directory = builders.LogDir(root)
    directory.partition("t").segment(
        builders.data(0, 3, leader_epoch=0),
        builders.data(3, 3, leader_epoch=0),
        builders.data(6, 3, leader_epoch=2),
    ).segment(builders.data(9, 3, leader_epoch=3))
    directory.write()
    (root / FOLDER / EPOCHS).write_bytes(b"0\n4\n0 0\n2 5\n3 9\n7 12\n")
    return root


def without_snapshots(root: Path) -> Path:
    """An epoch that rises, an abort, an open transaction, a marker alone."""
    made = snapshots.made(root)
    for path in (made / FOLDER).glob("*.snapshot"):
        path.unlink()
    return made


MIXED = next(case for case in forgotten.CASES if case.name == "beside one that is open")


def past_ends(root: Path, *, damaged: bool) -> Path:
    """A high watermark past the log end, in a file that is intact or damaged."""
    directory = builders.LogDir(root)
    for topic in ("t", "u"):
        directory.partition(topic).segment(builders.data(0, 5))
    directory.write(clean_stop=False)
    (root / "replication-offset-checkpoint").write_text(f"0\n{3 if damaged else 2}\nt 0 99\nu 0 3\n")
    return root


def rise_in_range(root: Path) -> Path:
    """A broker was killed that had not yet written that epoch 3 began, in a segment that a start recovers."""
    directory = builders.LogDir(root)
    partition = directory.partition("t")
    for base, epoch in ((0, 0), (3, 0), (6, 3)):
        partition.segment(builders.data(base, 3, leader_epoch=epoch))
    directory.write(clean_stop=False)
    (root / FOLDER / EPOCHS).write_bytes(b"0\n1\n0 0\n")
    recovery.set_points(root, {"t": 3})
    return root


def all_ended(data: bytes) -> bytes:
    """A snapshot in which no transaction is open."""
    return encoders.encode_snapshot(one._replace(current_txn_first_offset=-1) for one in entries_of(data))


def without_last(data: bytes) -> bytes:
    """A snapshot without its last producer."""
    return encoders.encode_snapshot(entries_of(data)[:-1])


def entries_of(data: bytes) -> tuple[ProducerEntry, ...]:
    """The producers of a snapshot."""
    found = producer_snapshot.decode(data)
    assert isinstance(found, ProducerSnapshot)
    return found.entries


def without_indexes(root: Path) -> Path:
    """Producer 7 aborts over two segments while 8 is open, 9 aborts too; the indexes that tell of it are gone."""
    directory = builders.LogDir(root)
    partition = directory.partition("t", index_interval_bytes=0)
    partition.segment(builders.data(0, 3, pid=7, txn=True), builders.data(3, 3, pid=8, txn=True)).segment(
        builders.data(6, 2, pid=9, txn=True),
        builders.abort(8, pid=7),
        builders.abort(9, pid=9),
        builders.commit(10, pid=8),
    ).segment(builders.data(11))
    directory.write()
    for suffix in (".index", ".txnindex"):
        (root / FOLDER / f"{6:020d}{suffix}").unlink()
    return root


def column(number: int, more: int) -> Wrongly:
    """Another value in one field of every producer."""

    def wrongly(table: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        table[:, number] += more
        return table

    return wrongly


COLUMNS = {name: (column(number, 1), "twin") for number, name in enumerate(ENTRY.names)}
ONE_LESS = {"one less": (lambda entry: entry and entry._replace(offset=entry.offset - 1), "twin")}
INTERVAL = (("index.interval.bytes", "0"),)
RECOVERED = recovery.Verbs(Path()).options()

TABLE = {
    "leader epochs": Derived(
        f"{FOLDER}/{EPOCHS}",
        histories,
        options("epochs"),
        (fixes_epochs,),
        "epochs_of_log",
        {
            "a start too late": (
                lambda log: log._replace(
                    epoch_starts=tuple(
                        one._replace(first_offset=one.first_offset + 1) for one in log.epoch_starts
                    )
                ),
                "twin",
            ),
            "a rise too few": (lambda log: log._replace(epoch_starts=log.epoch_starts[:1]), "twin"),
            "an epoch too high": (
                lambda log: log._replace(
                    epoch_starts=tuple(one._replace(epoch=one.epoch + 1) for one in log.epoch_starts)
                ),
                "twin",
            ),
        },
    ),
    "producers at the log end": Derived(
        f"{FOLDER}/{15:020d}.snapshot",
        without_snapshots,
        snapshots.options(),
        (ProducerTable,),
        "entries",
        COLUMNS | {"one is missing": (lambda table: table[1:], "twin")},
    ),
    "a forgotten transaction": Derived(
        f"{FOLDER}/{MIXED.snapshot:020d}.snapshot",
        lambda root: forgotten.made(root, MIXED),
        options("snapshots"),
        (snapshot_state,),
        "without_open",
        {
            "one that is open is ended": (all_ended, "twin"),
            "one is missing": (without_last, "twin"),
        },
    ),
    "a damaged checkpoint of the root": Derived(
        "replication-offset-checkpoint",
        lambda root: past_ends(root, damaged=True),
        options("checkpoints"),
        (checkpoints,),
        "_repair_entry",
        ONE_LESS,
    ),
    "lines of a checkpoint of the root": Derived(
        "replication-offset-checkpoint",
        lambda root: past_ends(root, damaged=False),
        options("checkpoints", accepted_losses=("KR312:t-0:5",)),
        (checkpoints,),
        "_repair_entry",
        ONE_LESS,
    ),
    "leader epochs of a recovery": Derived(
        f"{FOLDER}/{EPOCHS}",
        rise_in_range,
        RECOVERED,
        (recovery_rules, recovery_staging),
        "epochs_after_recovery",
        {
            "a start too late": (
                lambda made: (*made[:-1], made[-1]._replace(start_offset=made[-1].start_offset + 1)),
                "twin",
            ),
            "an epoch too high": (lambda made: (*made[:-1], made[-1]._replace(epoch=9)), "twin"),
        },
    ),
    "producers of a recovery": Derived(
        f"{FOLDER}/{450:020d}.snapshot",
        recovery.write_unclean,
        RECOVERED,
        (ProducerTable,),
        "entries",
        COLUMNS,
    ),
    "aborted transactions": Derived(
        f"{FOLDER}/{6:020d}.txnindex",
        without_indexes,
        options("index=regenerate", settings=INTERVAL),
        (transactions,),
        "judged",
        {
            "one is missing": (lambda made: (made[0][:1], *made[1:]), "verify"),
            "a first offset": (
                lambda made: ([one._replace(first_offset=1) for one in made[0]], *made[1:]),
                "verify",
            ),
        },
    ),
    "the replay of aborted transactions": Derived(
        f"{FOLDER}/{6:020d}.txnindex",
        without_indexes,
        options("index=regenerate", settings=INTERVAL),
        (transactions,),
        "replayed",
        {
            "the last abort is missed": (
                lambda made: [one._replace(entries=one.entries[:1], limits=one.limits[:1]) for one in made],
                "twin",
            ),
            "a last stable offset": (
                lambda made: [
                    one._replace(
                        entries=tuple(each._replace(last_stable_offset=1) for each in one.entries[:1])
                        + one.entries[1:]
                    )
                    for one in made
                ],
                "twin",
            ),
        },
    ),
    "index entries": Derived(
        f"{FOLDER}/{6:020d}.index",
        without_indexes,
        options("index=regenerate", settings=INTERVAL),
        (segment,),
        "rebuild_offset_and_time",
        {
            "a position": (
                lambda made: replace(made, index=made.index[:7] + b"\1" + made.index[8:]),
                "apply",
            ),
        },
    ),
}
MUTANTS = [(row, mutant) for row, derived in TABLE.items() for mutant in derived.wrongly]


@pytest.mark.parametrize("row", TABLE)
def test_what_is_made_is_right_and_any_flipped_bit_of_it_is_found(row: str, tmp_path: Path) -> None:
    derived = TABLE[row]
    root = derived.scene(tmp_path / "logs")
    plan = make_plan(str(root), derived.options)
    changes = [
        one for part in (*plan.partitions, *([plan.root] if plan.root else [])) for one in part.changes
    ]
    assert derived.file.rpartition("/")[2] in [getattr(one, "name", "") for one in changes], changes
    assert apply(plan, derived.options).exit_code is ExitCode.DONE
    assert verify_plan(plan, derived.options).problems == ()
    assert twin_problems(plan) == []
    path = root / derived.file
    right, found = path.read_bytes(), path.stat()
    for place in range(len(right)):
        flipped = bytes([*right[:place], right[place] ^ 1 << place % 8, *right[place + 1 :]])
        path.write_bytes(flipped)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        assert verify_plan(plan, derived.options).problems != (), (place, flipped)


@pytest.mark.parametrize(("row", "mutant"), MUTANTS)
def test_a_wrong_derivation_is_found(
    row: str, mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived = TABLE[row]
    wrongly, finder = derived.wrongly[mutant]
    for maker in derived.makers:
        real = getattr(maker, derived.name)

        def made(*given: Any, real: Callable[..., Any] = real, **named: Any) -> Any:
            return wrongly(real(*given, **named))

        monkeypatch.setattr(maker, derived.name, made)
    root = derived.scene(tmp_path / "logs")
    plan = make_plan(str(root), derived.options)
    if apply(plan, derived.options).exit_code is not ExitCode.DONE:
        found = "apply"
    elif verify_plan(plan, derived.options).problems:
        found = "verify"
    else:
        found = "twin" if twin_problems(plan) else "nobody"
    assert found == finder
