"""A log directory with a swap that a broker began and did not finish, in each state that a crash leaves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from krepair.formats import txn_index
from tests.builders import indexes
from tests.commit import txfixture
from tests.flips import flip
from tests.ops.inline import Inline

FOLDER = "t-0"
BASE = 100
ORIGINALS = (100, 200, 300)
EXTENSIONS = (".log", ".index", ".timeindex", ".txnindex")
SETTINGS = (("index.interval.bytes", str(txfixture.INTERVAL_BYTES)),)


def name(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


def write(
    root: Path,
    *,
    gone: Sequence[int] = (),
    deleted: Sequence[int] = (),
    cleaned: Sequence[int] = (),
    without: Sequence[str] = (),
    state: str = ".swap",
    damage_elsewhere: bool = False,
    until: int = 400,
    split: bool = False,
) -> Path:
    """The transactional partition of ``txfixture`` with M pending over segments 100, 200 and 300.

    Args:
        root: the log directory.
        gone: segments that are replaced and were already removed.
        deleted: segments that were already renamed to ``.deleted``.
        cleaned: segments beside which a later cleaning has just begun its ``.log.cleaned``.
        without: index extensions that the swap lacks.
        state: suffix of M's files.
        split: M is in its place, and the segments are pending.
        until: M has the batches below this offset only.
        damage_elsewhere: whether the active segment of the other partition has a bad CRC: no fence then.
    """
    path = txfixture.write_log_dir(root) / FOLDER
    (root / ".lock").touch()
    newest = (path / name(300)).stat().st_mtime_ns
    for base in ORIGINALS if split else ():
        for extension in EXTENSIONS:
            file = path / name(base, extension)
            if file.exists():
                file.rename(f"{file}.swap")
    for extension, data in merged(until).items():
        if extension not in without:
            file = path / (name(BASE, extension) + state)
            file.write_bytes(data)
            file.chmod(0o640)
            os.utime(file, ns=(newest, newest))
    for base in (*gone, *deleted):
        for extension in EXTENSIONS:
            file = path / name(base, extension)
            if base in deleted and file.exists():
                file.rename(f"{file}.deleted")
            file.unlink(missing_ok=True)
    for base in cleaned:
        (path / f"{name(base)}.cleaned").touch()
    if damage_elsewhere:
        other = root / "o-0" / name(0)
        flip(other, -1)
    return root


def write_split(root: Path, *, damage_elsewhere: bool = False) -> Path:
    """M in place of segments 100, 200 and 300, which are pending: as when a segment is split (KAFKA-6264)."""
    write(root, state="", damage_elsewhere=damage_elsewhere, split=True)
    return root


def merged(until: int = 400) -> dict[str, bytes]:
    """The files of M, with the batches below an offset only."""
    whole = txfixture.merged()
    if until >= 400:
        return whole
    batches = txfixture.batches(BASE, until, "M", txfixture.DROPPED)
    offset_index, time_index = indexes(BASE, batches, txfixture.INTERVAL_BYTES)
    entries = txn_index.decode(whole[".txnindex"])
    return {
        ".log": b"".join(batch.raw for batch in batches),
        ".index": offset_index,
        ".timeindex": time_index,
        ".txnindex": txn_index.encode(entry for entry in entries if entry.last_offset < until),
    }


options = Inline(settings=SETTINGS, now_ms=txfixture.TIME_MS + 10**9, fixes=("leftovers",)).options
