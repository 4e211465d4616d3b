"""One random directory: its content, its damage, and the request. The same seed gives the same directory."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from krepair.options import EngineName, Options
from tests.builders import NOW_MS, LogDir, data
from tests.fixture_dirs import unpack
from tests.lab.jars import LATEST
from tests.strategies import Shape, history
from tools.torture.scenes import OFFSETS_TOPIC, bloated, keyed, plain

FIXES = (
    "leftovers",
    "compact",
    "markers",
    "tail",
    "epochs",
    "snapshots",
    "index=regenerate",
    "recovery",
    "checkpoints",
)
REAL = (
    "offsets-bloat-2.2.0-clean",
    "compact-2.2.1-before",
    "compact-2.2.1-after-2.2.1",
    "leader-epochs-2.2.1",
    "offsets-cleaned-2.2.1",
    "offsets-tv2-4.3.1",
    "oldformat-2.2.1-before",
    "timeindex-ok-2.2.1",
    "timeindex-padded-2.2.1",
)
REAL_NOW_MS = 1_800_000_000_000
MOST_FOLDERS = 4
POINTS, WATERMARKS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"
ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34}


@dataclass(frozen=True)
class Drawn:
    """One directory and what is asked of it.

    Attributes:
        path: the log directory.
        text: in words, for a failure.
        options: of the verbs.
        damages: names of what was done to it.
    """

    path: Path
    text: str
    options: Options
    damages: tuple[str, ...]


def draw(seed: int, path: Path) -> Drawn:
    """Make the directory of a seed."""
    rng = random.Random(seed)
    name, now_ms = _history(path, rng)
    damages = tuple(_damage(path, rng) for _ in range(rng.randint(0, 6)))
    options = _options(rng, now_ms)
    asked = " ".join(
        [
            f"--fix {','.join(options.fixes)} --keep {options.keep} --delete-horizon {options.delete_horizon}",
            f"--broker-version {options.broker_version or '-'} merge={options.merge}",
        ]
    )
    return Drawn(path, f"seed {seed}: {name}; {', '.join(damages)}; {asked}", options, damages)


def _options(rng: random.Random, now_ms: int) -> Options:
    fixes = list(FIXES) if rng.random() < 0.3 else rng.sample(FIXES, rng.randint(1, len(FIXES)))
    tail = rng.choice(["tail", "tail", "tail=excise", "tail=broker"])
    words = tuple(sorted(tail if word == "tail" else word for word in fixes))
    drawn = Options(
        engine=EngineName.INLINE,
        now_ms=now_ms,
        fixes=words,
        keep=rng.choice(["inplace", "inplace", "until-verified"]),
        delete_horizon=rng.choice(["newest", "next-pass", "4000000000000"]),
        broker_version=rng.choice(["", "2.2.1", "3.9.2", LATEST]),
        merge=rng.random() < 0.7,
    )
    if "recovery" in words:
        rng.random()  # each seed goes on to make what it has always made
    return replace(
        drawn,
        settings=(
            ("segment.bytes", rng.choice(["4000", "100000000"])),
            ("index.interval.bytes", rng.choice(["64", "4096"])),
            ("delete.retention.ms", "100"),
            ("cleanup.policy", "compact"),
        ),
    )


# -- what it holds


def _history(path: Path, rng: random.Random) -> tuple[str, int]:
    if rng.random() < 0.3:
        name = rng.choice(REAL)
        _real(name, path, rng)
        return name, REAL_NOW_MS
    log_dir, names = LogDir(path), []
    for number in range(rng.randint(1, 2)):
        name = rng.choice(["bloated", "keyed", "plain", "history"])
        names.append(name)
        if name == "bloated":
            bloated(log_dir, "b", rng, number=number, segments=rng.randint(3, 6))
        elif name == "keyed":
            keyed(log_dir, OFFSETS_TOPIC, rng, number=number, segments=rng.randint(3, 6))
        elif name == "plain":
            plain(log_dir, f"p{number}", rng, segments=rng.randint(1, 4))
        else:
            topic, interval = rng.choice([OFFSETS_TOPIC, "h"]), rng.choice([64, 4096])
            partition = log_dir.partition(topic, 5 + number, index_interval_bytes=interval)
            history(rng.randrange(1 << 30), _shape(rng)).fill(partition)
    log_dir.write(clean_stop=rng.random() < 0.5)
    return " and ".join(names), NOW_MS


def _shape(rng: random.Random) -> Shape:
    return Shape(
        segments=rng.randint(2, 5),
        tombstones=rng.random() < 0.5,
        emptied=rng.random() < 0.3,
        stamps=rng.random() < 0.3,
        epoch_per_marker=rng.random() < 0.3,
        aborted_data=rng.random() < 0.7,
        open_at_end=rng.random() < 0.5,
    )


def _real(name: str, path: Path, rng: random.Random) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        unpack(name, Path(work)).rename(path)
    (path / "lab-manifest.json").unlink(missing_ok=True)
    folders = sorted(one for one in path.iterdir() if one.is_dir())
    rng.shuffle(folders)
    for folder in folders[MOST_FOLDERS:]:
        shutil.rmtree(folder)
    for file in path.rglob("*"):
        os.chown(file, os.geteuid(), os.getegid())


# -- what is wrong with it


def _damage(path: Path, rng: random.Random) -> str:
    """One damage, its name returned; some need a file that is not there, and do nothing."""
    name = rng.choice(sorted(_DAMAGES))
    folder = rng.choice(sorted(one for one in path.iterdir() if one.is_dir()))
    _DAMAGES[name](folder, rng)
    return f"{name} of {folder.name}"


Damage = Callable[[Path, random.Random], None]


def _files(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.suffix in suffixes)


def _one(folder: Path, rng: random.Random, *suffixes: str) -> Path | None:
    found = _files(folder, *suffixes)
    return rng.choice(found) if found else None


def _on(suffixes: Iterable[str], change: Callable[[bytes, str, random.Random], bytes | None]) -> Damage:
    """The damage of one file of the folder; without new bytes it goes."""

    def damage(folder: Path, rng: random.Random) -> None:
        if (file := _one(folder, rng, *suffixes)) is None:
            return
        new = change(file.read_bytes(), file.suffix, rng)
        if new is None:
            file.unlink()
        else:
            file.write_bytes(new)

    return damage


def _odd_epochs(folder: Path, rng: random.Random) -> None:
    odd = [b"", b"0\n9\n0 0\n", b"0\n1\n0 0\n", b"0\n2\n0 0\n5 99999\n", b"1\n0\n", b"0\n2\n3 10\n1 20\n"]
    (folder / EPOCHS).write_bytes(rng.choice(odd))


def _behind_the_log(folder: Path, content: bytes) -> None:
    log = _files(folder, ".log")[-1]
    log.write_bytes(log.read_bytes() + content)


def _torn(folder: Path, rng: random.Random) -> None:
    _behind_the_log(folder, data(10**6, 5).raw[: rng.randint(1, 90)])


def _zeros(folder: Path, rng: random.Random) -> None:
    _behind_the_log(folder, bytes(rng.randint(1, 5000)))


def _empty_log(folder: Path, rng: random.Random) -> None:
    del rng
    _files(folder, ".log")[-1].write_bytes(b"")


def _old_log(folder: Path, rng: random.Random) -> None:
    os.utime(rng.choice(_files(folder, ".log")), (1, 1))


def _pending_swap(folder: Path, rng: random.Random) -> None:
    log = rng.choice(_files(folder, ".log"))
    shutil.copy2(log, f"{log}.swap")


def _set_aside(folder: Path, rng: random.Random) -> None:
    (folder / f"{rng.choice([0, 10, 77]):020d}.log.deleted").write_bytes(b"x" * 40)


def _half_cleaned(folder: Path, rng: random.Random) -> None:
    suffix = rng.choice([".log", ".index", ".timeindex"])
    (folder / f"{rng.choice([0, 10, 77]):020d}{suffix}.cleaned").write_bytes(b"x" * 40)


def _stray(folder: Path, rng: random.Random) -> None:
    names = ["notes.txt", f"{55:020d}.timeindex", f"{99:020d}.snapshot", "partition.metadata"]
    (folder / rng.choice(names)).write_bytes(b"hello")


def _marker(folder: Path, rng: random.Random) -> None:
    del rng
    marker = folder.parent / ".kafka_cleanshutdown"
    marker.unlink() if marker.exists() else marker.touch()


def _lines(name: str) -> Damage:
    def write(folder: Path, rng: random.Random) -> None:
        partitions = sorted(one.name for one in folder.parent.iterdir() if one.is_dir())
        lines = [
            f"{topic} {number} {rng.choice([0, 1, 10, 25, 100, 10**7])}"
            for topic, _, number in (one.rpartition("-") for one in partitions)
            if rng.random() < 0.8
        ]
        count = len(lines) + (rng.random() < 0.2)
        text = "" if rng.random() < 0.2 else "\n".join(["0", str(count), *lines, ""])
        (folder.parent / name).write_text(text)

    return write


def _flipped(raw: bytes, _suffix: str, rng: random.Random) -> bytes:
    bad = bytearray(raw)
    if bad:
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
    return bytes(bad)


_DAMAGES: dict[str, Damage] = {
    "clean stop or not": _marker,
    "cut index": _on(ENTRY_BYTES, lambda raw, _, rng: raw[: rng.randint(0, len(raw))]),
    "empty log": _empty_log,
    "flipped bit": _on([".log"], _flipped),
    "half cleaned": _half_cleaned,
    "high watermarks": _lines(WATERMARKS),
    "index of junk": _on(ENTRY_BYTES, lambda _, __, rng: rng.randbytes(rng.randint(1, 50))),
    "log starts": _lines(LOG_STARTS),
    "no epochs": lambda folder, _: (folder / EPOCHS).unlink(missing_ok=True),
    "no index": _on(ENTRY_BYTES, lambda *_: None),
    "no recovery points": lambda folder, _: (folder.parent / POINTS).unlink(missing_ok=True),
    "no snapshot": _on([".snapshot"], lambda *_: None),
    "odd epochs": _odd_epochs,
    "old log": _old_log,
    "padded index": _on(
        ENTRY_BYTES, lambda raw, suffix, rng: raw + bytes(ENTRY_BYTES[suffix] * rng.randint(1, 20))
    ),
    "pending swap": _pending_swap,
    "recovery points": _lines(POINTS),
    "set aside": _set_aside,
    "snapshot of junk": _on([".snapshot"], lambda _, __, rng: rng.randbytes(rng.randint(0, 40))),
    "stray file": _stray,
    "torn tail": _torn,
    "twice the same": _on([".log"], lambda raw, *_: raw * 2),
    "zeros behind": _zeros,
}
