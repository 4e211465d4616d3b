"""Before a Spark worker on another host writes, both sides prove that they share one directory and its locks.

The driver writes a nonce into krepair's own sub-folder of a partition. A worker that finds it there, and finds the log
directory's lock held, answers in a file of its own that it locks. The driver reads the answer, looks whether it sees
that lock, and says yes or no in a third file. A clone or a snapshot of the directory has no nonce, or its answer never
arrives. A mount with ``nolock`` or ``local_lock`` does not show locks, so a broker on another client would not be kept
away: such a worker writes nothing.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from typing import Final

from msgspec import Struct

from krepair.durable.medium import is_of_one_host
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import KrepairError, UnwritableError
from krepair.logdir.lock import holder_of_file, is_locked, locked_file
from krepair.logdir.reading import why

NONCE: Final = "hosts~"
ANSWER: Final = "answer~"
REPLY: Final = "reply~"
YES: Final = "yes"
LOCKS_DIFFER: Final = "a broker would not be kept away"
"""In the words of a worker to which locks do not reach, or from which they do not."""
WAITS_S: Final = 90.0
"""How long a worker waits: attributes of a network file system are cached for up to a minute."""
_LOOK_EVERY_S: Final = 0.1
_STIR_EVERY_S: Final = 1.0
STIRRED: Final = "stir~"
_AT_MOST: Final = 4096

_answers: dict[str, str] = {}
"""Nonce -> why this worker process may not write, empty if it may: nothing is asked twice."""


class Greeting(Struct, frozen=True, kw_only=True):
    """What a worker has to find before it writes.

    Attributes:
        host: the driver's host name, for people.
        log_dir: absolute path of the log directory, whose lock the driver holds.
        folder: absolute path of the sub-folder with the nonce.
        nonce: 32 hex digits.
    """

    host: str
    log_dir: str
    folder: str
    nonce: str


class _Stirring:
    """Makes a client of a network file system look at a folder anew, which it would else do every 30 to 60 s.

    What a server answers to the making of a file says whether the folder has changed, so what is cached of it goes.
    Tried with NFS 3 and 4.2: the two sides see each other after a second instead of 30.

    Args:
        tree: that holds the folder.
        disk: makes and removes a file there.
        folder: absolute path of krepair's own sub-folder of one partition.
        name: of the file, with the nonce in it.
    """

    def __init__(self, tree: Tree, disk: RealDisk, folder: str, name: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{STIRRED}{name}"
        self._needed = not is_of_one_host(tree, folder)
        self._next = time.monotonic()

    def stir(self) -> None:
        """Do it, where it is needed and was not done a moment ago.

        Raises:
            OSError: the file can be neither made nor removed.
        """
        if self._needed and time.monotonic() >= self._next:
            self._next = time.monotonic() + _STIR_EVERY_S
            self._disk.create(self._path, b"", synced=False)
            self._disk.unlink(self._path)


class Greeter:
    """The driver's side: answers workers while a ``with`` block runs; its files are removed at the end.

    Args:
        log_dir: absolute path; its lock is held.
        folder: absolute path of krepair's own sub-folder of one partition, which is there.
    """

    def __init__(self, log_dir: str, folder: str) -> None:
        self.greeting = Greeting(
            host=socket.gethostname(), log_dir=log_dir, folder=folder, nonce=secrets.token_hex(16)
        )
        self._tree = Tree(log_dir)
        self._disk = RealDisk(self._tree)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._answer, name="krepair-greeter", daemon=True)

    def __enter__(self) -> Greeter:
        greeting = self.greeting
        path = f"{greeting.folder}/{NONCE}{greeting.nonce}"
        try:
            self._disk.create(path, greeting.nonce.encode())
            self._disk.sync_dir(greeting.folder)
        except OSError as error:
            raise UnwritableError(f"{error.filename or path}: {why(error)}") from error
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()
        # A file that cannot be removed is in nobody's way: purge and undo remove the sub-folder with all that is in it.
        with contextlib.suppress(OSError):
            for name in self._tree.names(self.greeting.folder):
                if self.greeting.nonce in name:
                    self._disk.unlink(f"{self.greeting.folder}/{name}")
        self._tree.close()

    def _answer(self) -> None:
        greeting, answered = self.greeting, set[str]()
        prefix = f"{ANSWER}{greeting.nonce}~"
        stirring = None
        while not self._ended.wait(_LOOK_EVERY_S):
            # An error of one look is seen again by the next; a worker that is never answered says so itself.
            with contextlib.suppress(OSError, KrepairError):
                stirring = stirring or _Stirring(self._tree, self._disk, greeting.folder, greeting.nonce)
                stirring.stir()
                for name in self._tree.names(greeting.folder):
                    token = name.removeprefix(prefix)
                    if token != name and token not in answered and self._reply(token):
                        answered.add(token)

    def _reply(self, token: str) -> bool:
        """Answer a worker. False while not all that it says has arrived: then the next look reads it again."""
        greeting = self.greeting
        path = f"{greeting.folder}/{ANSWER}{greeting.nonce}~{token}"
        said = self._tree.read(path, _AT_MOST)
        if said != _answer_of(greeting, token):
            return False
        seen = holder_of_file(path, self._tree) is not None
        reply = YES if seen else f"a lock that it holds is not seen on {greeting.host}: {LOCKS_DIFFER}"
        self._disk.create(f"{greeting.folder}/{REPLY}{greeting.nonce}~{token}", f"{reply}\n".encode())
        return True


def _answer_of(greeting: Greeting, token: str) -> bytes:
    return f"{greeting.nonce} {token} seen\n".encode()


def why_not_greeted(greeting: Greeting, waits_s: float = WAITS_S) -> str:
    """Prove to the driver that this worker writes where it reads, once per process.

    Returns:
        Why this worker may not write, one sentence; empty if it may.
    """
    if greeting.nonce in _answers:
        return _answers[greeting.nonce]
    try:
        with Tree(greeting.log_dir) as tree:
            wrong = _greet(greeting, tree, waits_s)
    except (OSError, KrepairError) as error:
        text = why(error) if isinstance(error, OSError) else error.message
        wrong = f"{getattr(error, 'filename', None) or greeting.folder}: {text}"
    _answers[greeting.nonce] = wrong
    return wrong


def _greet(greeting: Greeting, tree: Tree, waits_s: float) -> str:
    if tree.read(f"{greeting.folder}/{NONCE}{greeting.nonce}", _AT_MOST) != greeting.nonce.encode():
        return f"it does not see what {greeting.host} has just written into {greeting.folder}"
    if is_locked(greeting.log_dir) is None:
        return (
            f"{greeting.host} holds the lock of {greeting.log_dir}, and it looks free here: {LOCKS_DIFFER}; mount it "
            "so that locks reach all hosts (NFS: without nolock and local_lock)"
        )
    token, disk = secrets.token_hex(8), RealDisk(tree)
    path = f"{greeting.folder}/{ANSWER}{greeting.nonce}~{token}"
    disk.create(path, b"")
    try:
        with locked_file(path, tree):
            disk.append(path, _answer_of(greeting, token))
            stirring = _Stirring(tree, disk, greeting.folder, f"{greeting.nonce}~{token}")
            return _said(greeting, tree, token, stirring, waits_s)
    finally:
        with contextlib.suppress(OSError):
            disk.unlink(path)


def _said(greeting: Greeting, tree: Tree, token: str, stirring: _Stirring, waits_s: float) -> str:
    path = f"{greeting.folder}/{REPLY}{greeting.nonce}~{token}"
    until = time.monotonic() + waits_s
    while time.monotonic() < until:
        stirring.stir()
        reply = os.fsdecode(tree.read(path, _AT_MOST) or b"")
        if reply.endswith("\n"):  # else it is not there yet, or a part of it
            text = reply.removesuffix("\n")
            return "" if text == YES else text
        time.sleep(_LOOK_EVERY_S)
    return f"what it writes into {greeting.folder} does not reach {greeting.host}"
