"""Makes the fixtures of what an earlier krepair left behind: half applied, applied, half undone, half purged.

    python -m tools.make_half_done 7d977dd --out fixtures

Takes that commit out of git, runs its own code on its own scenes (``tools/torture/scenes.py``), and kills it at chosen
calls (``tools/torture/kills.py``). Of each state it writes down every file with its bytes, times, owner, mode and
inode, the plan file, and how the same code goes on from there: exit code and files after apply, undo and purge.
``tests/earlier`` puts the states on a disk again and has the code of today go on instead.

``--krepair COMMIT`` takes the product of an older commit that had no ``tools/torture`` yet. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard

SCENES = (
    "markers",
    "without-fence-2.2",
    "without-fence-3.9",
    "indexes",
    "derived",
    "everything",
    "leftovers",
    "leftovers-without-fence",
    "removals",
    "tail-cut",
    "excise",
    "set-aside",
)
"""Between them every kind of change but an empty segment, both orders of renames, with the fence and without."""
NEWER_SCENES = (
    "recovery",
    "keys",
    "markers~until-verified",
    "derived~until-verified",
    "everything~until-verified",
    "indexes~one-barrier",
)
"""With ``--newer``: an empty segment at the log end, originals that apply frees, one barrier for all that is staged."""
VERBS = ("apply", "undo", "purge")
LEVEL = 19
FORMAT_VERSION = 1


def main() -> None:
    """Take the commit out, and record in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commit", help="whose scenes, kills and, without --krepair, product are used")
    parser.add_argument("--krepair", metavar="COMMIT", help="take the package krepair of this commit instead")
    parser.add_argument(
        "--out", type=Path, default=Path("fixtures"), help="folder for earlier-COMMIT.json.zst"
    )
    parser.add_argument(
        "--kills", type=int, default=7, help="of apply, per scene; a third of them of undo and purge"
    )
    parser.add_argument(
        "--newer", action="store_true", help="also the scenes that the first versions do not have"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        record(given.out, given.kills, (*SCENES, *NEWER_SCENES) if given.newer else SCENES)
        return
    product = given.krepair or given.commit
    with tempfile.TemporaryDirectory(prefix="krepair-earlier-") as work:
        _take_out(given.commit, Path(work), "krepair", "tools", "tests", "fixtures")
        if given.krepair:
            subprocess.run(["rm", "-r", f"{work}/krepair"], check=True)
            _take_out(given.krepair, Path(work), "krepair")
        raw = Path(work) / "recorded.json"
        inside = ["--inside", "--out", str(raw), "--kills", str(given.kills)]
        inside += ["--newer"] if given.newer else []
        subprocess.run(
            [sys.executable, os.path.abspath(__file__), given.commit, *inside],
            cwd=work,
            env=os.environ | {"PYTHONPATH": work},
            check=True,
        )
        target = given.out / f"earlier-{product}.json.zst"
        packed = zstandard.ZstdCompressor(level=LEVEL).compress(raw.read_bytes())
        target.write_bytes(packed)
    print(f"{target}: {len(packed)} bytes")


def _take_out(commit: str, folder: Path, *paths: str) -> None:
    archive = subprocess.run(["git", "archive", commit, *paths], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)


def record(out: Path, kills: int, scenes: Sequence[str]) -> None:
    """Record all states of all scenes; everything that is imported here is of the earlier commit."""
    from tools.torture import faults

    faults.start_again(sys.argv)
    from tools.torture.runs import Runner, find_wanted, memory_or
    from tools.torture.scenes import build

    runner, work = Runner(), memory_or(None)
    blobs: dict[str, bytes] = {}
    states = []
    for name in scenes:
        scene = build(name)
        runner.warm_up([scene], work)
        wanted = find_wanted(runner, scene, work)
        for steps in _chosen(wanted.counts, kills):
            states.append(_state(runner, scene, steps, work, blobs))
            ends = {verb: end["code"] for verb, end in states[-1]["ends"].items()}
            print(f"{name}: {steps}: {ends}", flush=True)
    document = {
        "format_version": FORMAT_VERSION,
        "states": states,
        "blobs": {key: base64.b64encode(data).decode() for key, data in blobs.items()},
    }
    out.write_text(json.dumps(document, indent=1, sort_keys=True))


def _chosen(counts: dict[str, int], kills: int) -> Iterator[str]:
    """Steps that leave a state: each verb killed at calls that are evenly spread, and an apply that came to its end."""
    for verb, first, most in (
        ("apply", "", kills),
        ("undo", "apply.", kills // 3),
        ("purge", "apply.", kills // 3),
    ):
        places = {round((place + 1) * counts[verb] / (most + 1)) for place in range(most)}
        yield from (f"{first}{verb}@{number}a" for number in sorted(places) if number)
    yield "apply"


def _state(runner: Any, scene: Any, steps: str, work: Path, blobs: dict[str, bytes]) -> dict[str, Any]:
    from tools.torture.runs import case_folder
    from tools.torture.scenes import look

    with case_folder(work) as folder:
        placed = scene.place(folder)
        before = _shape(look(placed.path))
        _go(runner, placed, steps)
        entries = _entries(placed.path, blobs)
        plan = placed.plan_file.read_text()
    ends = {}
    for verb in VERBS:
        with case_folder(work) as folder:
            placed = scene.place(folder)
            _go(runner, placed, steps)
            code = _go(runner, placed, verb)
            ends[verb] = {"code": code, "files": _shape(look(placed.path))}
    return {
        "scene": scene.name,
        "steps": steps,
        "plan": plan,
        "entries": entries,
        "before": before,
        "ends": ends,
    }


def _go(runner: Any, placed: Any, steps: str) -> int:
    from tools.torture.runs import parse_steps

    code = 0
    for step in parse_steps(steps):
        ended = runner.run(placed, step)
        assert ended.killed == step.kills, f"{step.text}: {ended}"
        code = ended.code
    return int(code)


def _shape(tree: Any) -> dict[str, list[Any]]:
    """What a broker sees: name -> mode, user, group, modification time in ns (0 of a folder), SHA-256 of a file."""
    return {
        name: [seen.mode, *seen.owner, seen.mtime_ns, seen.content]
        for name, seen in tree.items()
        if "krepair~" not in name and name != ".lock"
    }


def _entries(root: Path, blobs: dict[str, bytes]) -> list[dict[str, Any]]:
    """Every file and folder, a folder before what is in it; files with one inode are one file."""
    out = []
    for path in [root, *sorted(root.rglob("*"))]:
        found = path.lstat()
        row = {
            "name": os.path.relpath(path, root),
            "mode": found.st_mode,
            "owner": [found.st_uid, found.st_gid],
            "inode": found.st_ino,
        }
        if path.is_file():
            data = path.read_bytes()
            row["mtime_ns"] = found.st_mtime_ns
            row["blob"] = hashlib.sha256(data).hexdigest()[:16]
            blobs[row["blob"]] = data
        out.append(row)
    return out


if __name__ == "__main__":
    main()
