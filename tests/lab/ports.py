"""Ports reserved for this process: no other test process of this machine gets them, however long they stay unbound."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from dataclasses import dataclass, field

from tests.lab.jars import cache_root

FIRST, LAST = 15_000, 32_000
"""Below those that the system gives to clients, which would soon take them."""
_EACH = 500


@dataclass
class _Block:
    """Ports that this process has locked, given out in turn: one that is given back rests for long.

    A broker of a test stops and starts again on its port; meanwhile the port is free for whoever binds it.
    """

    first: int
    process: int = field(default_factory=os.getpid)
    given: int = 0

    def next(self) -> int:
        port = self.first + self.given % _EACH
        self.given += 1
        return port


_block: _Block | None = None


def free_port() -> int:
    """A port that was free a moment ago, and that no other test process is given while this one lives.

    Raises:
        RuntimeError: all blocks of ports are taken, or something else listens on all ports of this block.
    """
    global _block
    if _block is None or _block.process != os.getpid():
        _block = _locked_block()
    for _ in range(_EACH):
        port = _block.next()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no port from {_block.first} on is free")


def _locked_block() -> _Block:
    folder = cache_root() / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(FIRST, LAST, _EACH):
        # kept open, and so locked, until this process ends
        lock = os.open(folder / str(first), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return _Block(first)
    raise RuntimeError(f"all ports from {FIRST} to {LAST} are taken by other test processes: {folder}")
