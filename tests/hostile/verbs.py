"""Runner of every verb in turn on one log directory, and what must hold whatever the directory contains."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import signal
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from krepair.cli.main import app
from krepair.errors import ExitCode

ALL_FIXES = "markers,index,epochs,checkpoints,snapshots,leftovers,tail"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
FORGED = re.compile("^[ |]*KR999", re.MULTILINE)
"""What the name with a newline would write on a line of its own."""
TIME_LIMIT_S = 60
BIG_BYTES = 1 << 22


class Ran(NamedTuple):
    """One run of the command line."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str


def run(*words: str) -> Ran:
    """Run it in this process; one that waits for ever is ended."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "strict") for _ in range(2))
    code = -1
    with alarm(words), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
    out.flush()
    err.flush()
    said = [each.buffer.getvalue().decode("utf-8") for each in (out, err)]  # type: ignore[attr-defined]
    return Ran(words, code, *said)


@contextlib.contextmanager
def alarm(words: tuple[str, ...]) -> Iterator[None]:
    """Fail when the block takes longer than the time limit, as an open FIFO would."""

    def late(*_: object) -> None:
        raise AssertionError(f"{words} was not done in {TIME_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(TIME_LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def picture(root: Path) -> dict[bytes, tuple[object, ...]]:
    """Every entry below a directory by its bytes: kind, mode, owner, size, time, content; nothing special is opened."""
    out: dict[bytes, tuple[object, ...]] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in folders + files:
            path = os.path.join(folder, name)
            found = os.lstat(path)
            row: tuple[object, ...] = (oct(found.st_mode), found.st_uid, found.st_gid, found.st_rdev)
            if stat.S_ISLNK(found.st_mode):
                row += (os.readlink(path),)
            elif stat.S_ISREG(found.st_mode):
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read(BIG_BYTES)).hexdigest()
                row += (found.st_size, found.st_blocks, found.st_mtime_ns, digest)
            out[os.path.relpath(path, os.fsencode(root))] = row
    return out


def assert_tame(ran: Ran, *codes: ExitCode) -> None:
    """An exit code of the list, not of a bug; no traceback; nothing that steers a terminal; JSON that can be read."""
    said = f"{ran.words} ended with {ran.code}: {ran.err[-1500:]}"
    assert ran.code in set(ExitCode) - {ExitCode.BUG}, said
    assert not codes or ran.code in codes, said
    assert "Traceback" not in ran.out + ran.err, said
    assert not FORGED.search(ran.out + ran.err), said
    assert not CONTROL.search(ran.err), repr(CONTROL.search(ran.err))
    if "--json" in ran.words:
        msgspec.json.decode(ran.out.encode())
    if ran.words[-2:] == ("--format", "json"):
        return  # the plan file's own text, for a program
    assert not CONTROL.search(ran.out), (
        ran.words,
        repr(ran.out[max(CONTROL.search(ran.out).start() - 40, 0) :][:120]),
    )  # type: ignore[union-attr]


def every_verb(log_dir: Path, plan: Path, *options: str, dumped: Sequence[str] = ()) -> list[Ran]:
    """All verbs in the order of a repair; each must be tame, and after undo everything is as it was.

    Args:
        log_dir: the log directory.
        plan: where the plan file goes.
        options: of check and plan.
        dumped: files that are dumped, each by itself.
    """
    before = picture(log_dir)
    where = str(log_dir)
    runs = [
        run("check", where, "--all", "--engine", "inline", *options),
        run("check", where, "--engine", "inline", "--json", *options),
        run("verify", where, "--engine", "inline"),
        run("transactions", where, "--engine", "inline"),
        run("groups", where),
        *(run("dump", file) for file in dumped),
        run("plan", where, "--fix", ALL_FIXES, "--engine", "inline", "--out", str(plan), *options),
    ]
    for ran in runs:
        assert_tame(ran)
    assert picture(log_dir) == before
    if not plan.exists():
        return runs
    shown = [run("show", str(plan), *words) for words in ((), ("--format", "md"), ("--format", "json"))]
    for ran in shown:
        assert_tame(ran, ExitCode.DONE, ExitCode.FOUND, ExitCode.REFUSED)
    assert picture(log_dir) == before
    changing = []
    for words in (
        ("apply", str(plan), "--engine", "inline"),
        ("apply", str(plan), "--engine", "inline", "--json"),
        ("verify", str(plan), "--engine", "inline"),
        ("undo", str(plan)),
        ("undo", str(plan), "--json"),
        ("purge", str(plan)),
    ):
        ran = run(*words)
        assert_tame(ran)
        changing.append(ran)
    after = picture(log_dir)
    assert after == before, {key: (before.get(key), after.get(key)) for key in before.keys() ^ after.keys()}
    return runs + shown + changing


def codes(runs: Sequence[Ran]) -> dict[str, list[int]]:
    """Verb -> exit codes of its runs, in order."""
    out: dict[str, list[int]] = {}
    for ran in runs:
        out.setdefault(ran.words[0], []).append(ran.code)
    return out


def findings(runs: Sequence[Ran]) -> list[dict[str, object]]:
    """What ``check --json`` found in the one log directory."""
    (checked,) = (ran for ran in runs if ran.words[0] == "check" and "--json" in ran.words)
    found: list[dict[str, object]] = msgspec.json.decode(checked.out)["report"]["log_dirs"][0]["findings"]
    return found


def found_at(runs: Sequence[Ran], place: str) -> set[str]:
    """The rules under which a file or folder is named by ``check --json``, as it is written there."""
    return {str(one["rule"]) for one in findings(runs) if place in (one["file"], one["partition"])}


ALL_WELL = {"apply": [0, 0], "undo": [0, 0], "purge": [0]}
"""Exit codes of the verbs that change something, where the plan can be carried out or changes nothing."""


def carried_out(runs: Sequence[Ran]) -> dict[str, list[int]]:
    """Exit codes of the verbs that change something."""
    return {verb: found for verb, found in codes(runs).items() if verb in ALL_WELL}
