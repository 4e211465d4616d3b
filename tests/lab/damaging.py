"""Seeded damage to one partition folder, as a power cut, a bad disk, a bad copy or a bad program leaves it.

``damage(chance, folder)`` breaks one thing and says what. The same chance on the same folder breaks the same thing.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import crc32c

ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34}
HEADER_FIELDS = {
    "offset": (0, 8),
    "length": (8, 4),
    "leader epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "record count": (57, 4),
}
SEALED = "log: a wrong batch with a right checksum"
Breaks = Callable[[random.Random, Path], str]


SWAP = "a swap"


def files(folder: Path, suffix: str) -> list[Path]:
    """The files with a suffix, by name."""
    return sorted(folder.glob(f"*{suffix}"))


def batches(log: bytes) -> list[tuple[int, int]]:
    """(position, bytes) of each batch of a log, as far as the sizes lead."""
    found, position = [], 0
    while position + 17 <= len(log):
        size = struct.unpack_from(">i", log, position + 8)[0] + 12
        if size < 14 or position + size > len(log):
            break
        found.append((position, size))
        position += size
    return found


def _pick(chance: random.Random, folder: Path, suffix: str) -> Path | None:
    found = files(folder, suffix)
    # the last segment is the one that most starts look at
    return None if not found else found[-1] if chance.random() < 0.5 else chance.choice(found)


def _write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as handle:
        handle.seek(position)
        handle.write(data)


# -- any file


def _flip(chance: random.Random, path: Path) -> str:
    raw = path.read_bytes()
    if not raw:
        return ""
    place, bit = chance.randrange(len(raw)), chance.randrange(8)
    _write_at(path, place, bytes([raw[place] ^ 1 << bit]))
    return f"{path.name}: bit {bit} of byte {place}"


def _cut(chance: random.Random, path: Path) -> str:
    size = path.stat().st_size
    if not size:
        return ""
    left = chance.randrange(size) if chance.random() < 0.5 else max(0, size - chance.randint(1, 90))
    path.write_bytes(path.read_bytes()[:left])
    return f"{path.name}: cut from {size} to {left} bytes"


def _scribble(chance: random.Random, path: Path) -> str:
    size = path.stat().st_size
    if not size:
        return ""
    place = chance.randrange(size)
    count = min(chance.choice([1, 4, 17, 64, 300]), size - place)
    data = bytes(count) if chance.random() < 0.5 else chance.randbytes(count)
    _write_at(path, place, data)
    return f"{path.name}: {count} bytes overwritten at {place}"


def _append(chance: random.Random, path: Path) -> str:
    count = chance.choice([1, 3, 8, 11, 12, 17, 18, 34, 60, 61, 500, 4096])
    kind = chance.choice(["zeros", "noise", "ones"])
    data = {"zeros": bytes(count), "noise": chance.randbytes(count), "ones": b"\xff" * count}[kind]
    with path.open("ab") as handle:
        handle.write(data)
    return f"{path.name}: {count} bytes of {kind} behind it"


def _remove(chance: random.Random, path: Path) -> str:
    path.unlink()
    return f"{path.name}: removed"


def _empty(chance: random.Random, path: Path) -> str:
    path.write_bytes(b"")
    return f"{path.name}: emptied"


# -- logs


def _log(chance: random.Random, folder: Path, breaks: Breaks) -> str:
    path = _pick(chance, folder, ".log")
    return breaks(chance, path) if path is not None else ""


def _header_bit(chance: random.Random, path: Path) -> str:
    raw = path.read_bytes()
    found = batches(raw)
    if not found:
        return ""
    position, size = chance.choice(found)
    name = chance.choice(list(HEADER_FIELDS))
    start, count = HEADER_FIELDS[name]
    if start + count > size:
        return ""
    place, bit = position + start + chance.randrange(count), chance.randrange(8)
    _write_at(path, place, bytes([raw[place] ^ 1 << bit]))
    return f"{path.name}: a bit of the {name} of the batch at {position}"


def _other_offset(chance: random.Random, path: Path) -> str:
    """A wrong offset under a right checksum, which does not cover it."""
    raw = path.read_bytes()
    found = batches(raw)
    if not found:
        return ""
    position, _ = chance.choice(found)
    offset = struct.unpack_from(">q", raw, position)[0]
    base = int(path.name.split(".")[0])
    new = chance.choice(
        [
            offset - 1,
            offset + 1,
            base,
            base - 1,
            offset + 1000,
            offset - 1000,
            base + 2**31 - 1,
            base + 2**31,
            2**62,
            -5,
            struct.unpack_from(">q", raw, chance.choice(found)[0])[0],
        ]
    )
    _write_at(path, position, struct.pack(">q", new))
    return f"{path.name}: offset {offset} of the batch at {position} becomes {new}"


def _last_length(chance: random.Random, path: Path) -> str:
    """What lies behind the last batch declares a size that no batch has, or one that leads nowhere."""
    size = chance.choice([0, -1, -(2**31), 13, 14, 48, 49, 60, 2**31 - 1])
    front = struct.pack(">qiib", chance.choice([0, -1, 10**6]), size, 0, chance.choice([-1, 0, 1, 2, 3]))
    with path.open("ab") as handle:
        handle.write(front + chance.randbytes(chance.choice([0, 1, 44, 100])))
    return f"{path.name}: a batch that declares {size} bytes behind the last one"


def _cut_between(chance: random.Random, path: Path) -> str:
    found = batches(path.read_bytes())
    if not found:
        return ""
    position = chance.choice(found)[0]
    path.write_bytes(path.read_bytes()[:position])
    return f"{path.name}: cut before the batch at {position}"


def _without_batch(chance: random.Random, path: Path) -> str:
    raw = path.read_bytes()
    found = batches(raw)
    if not found:
        return ""
    position, size = chance.choice(found)
    size = size if chance.random() < 0.5 else chance.randint(1, size)
    path.write_bytes(raw[:position] + raw[position + size :])
    return f"{path.name}: {size} bytes taken out at {position}"


def _again(chance: random.Random, path: Path) -> str:
    raw = path.read_bytes()
    found = batches(raw)
    if not found:
        return ""
    position, size = chance.choice(found)
    place = chance.choice([*(start for start, _ in found), len(raw)])
    path.write_bytes(raw[:place] + raw[position : position + size] + raw[place:])
    return f"{path.name}: the batch at {position} once more, at {place}"


def _segment_gone(chance: random.Random, folder: Path) -> str:
    logs = files(folder, ".log")
    if len(logs) < 2:
        return ""
    stem = chance.choice(logs).name.split(".")[0]
    for suffix in (".log", *ENTRY_BYTES):
        (folder / f"{stem}{suffix}").unlink(missing_ok=True)
    return f"{stem}: the whole segment removed"


def _sealed(chance: random.Random, path: Path) -> str:
    """Something else than was written, under a checksum that fits: a program did it, or memory before the checksum."""
    raw = path.read_bytes()
    found = [(position, size) for position, size in batches(raw) if raw[position + 16] == 2 and size >= 61]
    if not found:
        return ""
    position, size = chance.choice(found)
    name = chance.choice(
        ["attributes", "last offset delta", "max timestamp", "producer id", "producer epoch", "body"]
    )
    start, count = (61, size - 61) if name == "body" else HEADER_FIELDS[name]
    if not count:
        return ""
    place, bit = position + start + chance.randrange(count), chance.randrange(8)
    body = bytearray(raw[position : position + size])
    body[place - position] ^= 1 << bit
    body[17:21] = struct.pack(">I", crc32c.crc32c(bytes(body[21:])))
    _write_at(path, position, bytes(body))
    return f"{path.name}: a bit of the {name} of the batch at {position}, the checksum made to fit"


# -- indexes


def _index(chance: random.Random, folder: Path, suffix: str, breaks: Breaks) -> str:
    path = _pick(chance, folder, suffix)
    return breaks(chance, path) if path is not None else ""


def _pad(chance: random.Random, path: Path) -> str:
    entry = ENTRY_BYTES[path.suffix]
    count = chance.choice([1, 2, 30, 300])
    with path.open("ab") as handle:
        handle.write(bytes(entry * count + chance.choice([0, 0, 0, 5])))
    return f"{path.name}: padded by {count} entries"


def _preallocated(chance: random.Random, path: Path) -> str:
    """As the index of an active segment is while a broker runs, and stays when it is killed."""
    entry = ENTRY_BYTES[path.suffix]
    most = chance.choice([4096, 10 << 20, 10 << 20, 11 << 20])
    size = max(path.stat().st_size, most // entry * entry)
    with path.open("ab") as handle:
        handle.truncate(size)
    return f"{path.name}: {size} bytes, zeros behind its entries"


def _entry(chance: random.Random, path: Path) -> str:
    """One entry becomes another one."""
    entry = ENTRY_BYTES[path.suffix]
    count = path.stat().st_size // entry
    number = count - 1 if chance.random() < 0.5 else chance.randrange(max(count, 1))
    if count == 0:
        return ""
    place = number * entry
    if path.suffix == ".index":
        data = struct.pack(
            ">ii",
            chance.choice([-1, 0, 1, 5, 2**31 - 1, -(2**31)]),
            chance.choice([-1, 0, 7, 78, 1000, 2**30]),
        )
    elif path.suffix == ".timeindex":
        data = struct.pack(
            ">qi", chance.choice([-1, 0, 1, 2**62, 1_750_000_000_000]), chance.choice([-1, 0, 3, 2**31 - 1])
        )
    else:
        base = int(path.name.split(".")[0])
        version = chance.choice([0, 0, 1, 256, 0x7F00, -1, -32768])
        last = chance.choice([base - 1, base, 0, -1, base + 1, 2**62])
        data = struct.pack(
            ">hqqqq", version, chance.choice([-1, 7, 1000]), last, last, chance.choice([0, last])
        )
    _write_at(path, place, data)
    return f"{path.name}: entry {number} is made up"


def _new_txn_index(chance: random.Random, folder: Path) -> str:
    log = _pick(chance, folder, ".log")
    if log is None:
        return ""
    base = int(log.name.split(".")[0])
    last = chance.choice([base - 1, base, base + 3, 0])
    version = chance.choice([0, 0, 0x0100])
    path = log.with_suffix(".txnindex")
    path.write_bytes(
        struct.pack(">hqqqq", version, 5, max(last - 1, 0), last, last) + bytes(chance.choice([0, 0, 3]))
    )
    return f"{path.name}: one entry of version {version} that ends at {last}"


# -- snapshots and epochs


def _snapshot(chance: random.Random, folder: Path) -> str:
    found = files(folder, ".snapshot")
    if not found:
        return ""
    path = found[-1] if chance.random() < 0.5 else chance.choice(found)
    breaks = chance.choice([_flip, _cut, _remove, _empty, _append, _scribble])
    return breaks(chance, path)


def _snapshots_gone(chance: random.Random, folder: Path) -> str:
    for path in files(folder, ".snapshot"):
        path.unlink()
    return "every snapshot removed"


def _snapshot_elsewhere(chance: random.Random, folder: Path) -> str:
    found = files(folder, ".snapshot")
    if not found:
        return ""
    path = chance.choice(found)
    offset = int(path.name.split(".")[0]) + chance.choice([-3, -1, 1, 2, 7, 1000])
    if offset < 0:
        return ""
    target = folder / f"{offset:020d}.snapshot"
    (shutil.copy if chance.random() < 0.5 else shutil.move)(path, target)
    return f"{path.name}: also or only as {target.name}"


def _epochs(chance: random.Random, folder: Path) -> str:
    path = folder / "leader-epoch-checkpoint"
    if not path.exists():
        return ""
    whole = chance.choice(
        [
            b"",
            b"0\n",
            b"0\n0\n",
            b"1\n0\n",
            b"0\n1\n0 0\n",
            b"0\n2\n0 0\n",
            b"0\n1\n-1 0\n",
            b"0\n1\nx y\n",
            None,
        ]
    )
    if whole is not None and chance.random() < 0.5:
        path.write_bytes(whole)
        return f"{path.name}: {whole!r}"
    return chance.choice([_flip, _cut, _remove, _scribble, _append])(chance, path)


def _swap(chance: random.Random, folder: Path) -> str:
    """A swap that a killed broker left: a merge or an index alone, complete or not, its originals there or not."""
    logs = files(folder, ".log")
    if files(folder, ".swap"):  # before 3.0 the order of two is that of a hash of their paths
        return ""
    first = chance.randrange(len(logs))
    merged = logs[first : first + chance.randint(1, 3)]
    base, said = logs[first], []
    if chance.random() < 0.75:
        swap = base.with_suffix(".log.swap")
        swap.write_bytes(
            b"".join(path.read_bytes() for path in merged)[: chance.choice([None, None, None, -9, 0])]
        )
        said = [swap.name]
    for suffix in ENTRY_BYTES:
        if (path := base.with_suffix(suffix)).exists() and chance.random() < 0.6:
            shutil.copy(path, base.with_suffix(f"{suffix}.swap"))
            said.append(f"{path.name}.swap")
            if chance.random() < 0.5:
                path.unlink()
    keeps = len(logs) == len(merged) or chance.random() < 0.5
    for path in () if keeps or not said or not said[0].endswith(".log.swap") else merged:
        if chance.random() < 0.7:
            path.unlink()
            said.append(f"without {path.name}")
    if said and chance.random() < 0.15:
        other = chance.choice(logs)
        other.with_suffix(".log.cleaned").write_bytes(b"")
        said.append(f"{other.name}.cleaned")
    return ", ".join(said)


KINDS: tuple[tuple[str, float, Breaks], ...] = (
    (SWAP, 4, _swap),
    ("log: one bit", 2, lambda c, f: _log(c, f, _flip)),
    ("log: one bit of a header", 4, lambda c, f: _log(c, f, _header_bit)),
    ("log: another offset", 3, lambda c, f: _log(c, f, _other_offset)),
    ("log: overwritten", 2, lambda c, f: _log(c, f, _scribble)),
    ("log: cut", 2, lambda c, f: _log(c, f, _cut)),
    ("log: cut between batches", 1, lambda c, f: _log(c, f, _cut_between)),
    ("log: bytes behind it", 2, lambda c, f: _log(c, f, _append)),
    ("log: a size that is none behind it", 2, lambda c, f: _log(c, f, _last_length)),
    ("log: bytes taken out", 1, lambda c, f: _log(c, f, _without_batch)),
    ("log: a batch twice", 1, lambda c, f: _log(c, f, _again)),
    (SEALED, 1, lambda c, f: _log(c, f, _sealed)),
    ("log: emptied", 0.3, lambda c, f: _log(c, f, _empty)),
    ("segment removed", 0.5, _segment_gone),
    *(
        (f"{suffix}: {name}", weight, (lambda c, f, s=suffix, b=breaks: _index(c, f, s, b)))
        for suffix in ENTRY_BYTES
        for name, weight, breaks in (
            ("one bit", 1, _flip),
            ("cut", 0.6, _cut),
            ("overwritten", 0.6, _scribble),
            ("bytes behind it", 0.5, _append),
            ("padded", 0.6, _pad),
            ("an entry made up", 1.5, _entry),
            ("removed", 0.6, _remove),
            ("emptied", 0.3, _empty),
        )
    ),
    (".index: preallocated", 0.6, lambda c, f: _index(c, f, ".index", _preallocated)),
    (".timeindex: preallocated", 0.6, lambda c, f: _index(c, f, ".timeindex", _preallocated)),
    (".txnindex: made up", 1, _new_txn_index),
    ("snapshot", 2, _snapshot),
    ("snapshots removed", 0.5, _snapshots_gone),
    ("snapshot elsewhere", 1, _snapshot_elsewhere),
    ("leader epochs", 1.5, _epochs),
)


def damage(chance: random.Random, folder: Path) -> tuple[str, str]:
    """Break one thing; gives the kind of damage and what was done."""
    while True:
        ((kind, _, breaks),) = chance.choices(KINDS, [weight for _, weight, _ in KINDS])
        said = breaks(chance, folder)
        if said and files(folder, ".log"):
            return kind, said
