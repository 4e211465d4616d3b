"""Holds the plans of two trees of this project against each other: byte for byte, but for the version.

    python -m tools.compare_plans --against ../other-tree
    python -m tools.compare_plans --against 5adb171 --part corpus

Each tree makes its own directories with its own code, and its own plans of them: every case of ``tests/corpus``, every
scene of ``tools/torture`` with every ``--keep``, and every real directory of ``fixtures/`` with each fix alone and with
all of them. What no two runs have in common is left out: inodes, the path of the folder of the run, times of files that
were written just now, the plan's own name and digest, and the version of krepair.

For changes that must not change what is planned. Ends with 1 if a plan differs, and shows the first lines that do.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

PARTS = ("corpus", "scenes", "fixtures")
FIXES = (
    *("markers", "compact", "tail", "index", "epochs", "snapshots", "leftovers", "checkpoints", "recovery"),
    "markers,tail,index,epochs,snapshots,leftovers,checkpoints",
    "compact,tail,index,epochs,snapshots,leftovers,checkpoints",
    "recovery,markers,leftovers,checkpoints",
)
KEEPS = ("inplace", "until-verified")
OF_THE_RUN = frozenset({"inode", "log_dir_inode", "looked_at", "tool_version", "plan_id", "digest_of_plan"})
FOLDER_OF_THE_RUN = re.compile(r"(krepair-(scene|compared|copies)-|tmp)[a-z0-9_]+")
LINES_SHOWN = 12


def main() -> None:
    """Run both trees at the same time and compare what they planned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", metavar="TREE", help="a work tree of this project, or a commit")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    parts = given.part or list(PARTS)
    if given.inside:
        _record(given.inside, parts)
        return
    if not given.against:
        parser.error("--against is missing")
    with tempfile.TemporaryDirectory(prefix="krepair-trees-") as work:
        other = Path(given.against)
        if not (other / "krepair").is_dir():
            other = _taken_out(given.against, Path(work) / "tree")
        trees = {"here": Path(__file__).resolve().parent.parent, "there": other.resolve()}
        runs = {name: _started(tree, Path(work) / f"{name}.json", parts) for name, tree in trees.items()}
        codes = [run.wait() for run in runs.values()]
        if any(codes):
            sys.exit("a tree could not make its plans; see above")
        here, there = (json.loads((Path(work) / f"{name}.json").read_text()) for name in runs)
    sys.exit(compare(here, there))


def _taken_out(commit: str, folder: Path) -> Path:
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


def _started(tree: Path, out: Path, parts: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", os.path.abspath(__file__), "--inside", os.fspath(out)]
    command += [word for part in parts for word in ("--part", part)]
    return subprocess.Popen(command, cwd=tree, env=os.environ | {"PYTHONPATH": os.fspath(tree)})


def compare(here: dict[str, str], there: dict[str, str]) -> int:
    """Print what differs between name -> plan of two trees; 1 if anything does."""
    wrong = 0
    for name in sorted(here.keys() | there.keys()):
        if name not in here or name not in there:
            print(f"{name}: only {'there' if name in there else 'here'}")
            wrong += 1
        elif here[name] != there[name]:
            lines = difflib.unified_diff(there[name].splitlines(), here[name].splitlines(), "there", "here")
            print(f"{name}: differs", *list(lines)[:LINES_SHOWN], sep="\n    ")
            wrong += 1
    planned = sum('"change_id"' in text for text in here.values())
    print(f"{len(here)} plans, {planned} of them with changes: {wrong} differ")
    return int(wrong > 0)


# -- inside one tree: everything that is imported from here on is of that tree


def _record(out: Path, parts: list[str]) -> None:
    makers: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
        "corpus": _of_corpus,
        "scenes": _of_scenes,
        "fixtures": _of_fixtures,
    }
    began = time.time_ns()
    found: dict[str, str] = {}
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="krepair-compared-", dir=memory) as work:
        for part in parts:
            for name, text in makers[part](Path(work)):
                found[f"{part} {name}"] = comparable(text, began)
    out.write_text(json.dumps(found))


def comparable(text: str, began: int) -> str:
    """A plan without what no two runs have in common; a refusal as it is said."""
    if not text.startswith("{"):
        return FOLDER_OF_THE_RUN.sub("FOLDER", text)

    def plain(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            top = "format_version" in value
            return {
                key: plain(one, "digest_of_plan" if top and key == "digest" else key)
                for key, one in value.items()
            }
        if isinstance(value, list):
            return [plain(one) for one in value]
        if name in OF_THE_RUN:
            return "of this run"
        if name == "mtime_ns" and value >= began:
            return "just now"
        return FOLDER_OF_THE_RUN.sub("FOLDER", value) if isinstance(value, str) else value

    return json.dumps(plain(json.loads(text)), indent=1)


def _planned(make: Callable[[], Any]) -> str:
    from krepair.errors import KrepairError
    from krepair.plan import planfile

    try:
        return planfile.dumps(make()).decode()
    except KrepairError as error:
        return f"{type(error).__name__}: {error.message}"


def _of_corpus(work: Path) -> Iterator[tuple[str, str]]:
    from krepair.ops.plan import make_plan
    from tests.corpus.cases import CASES
    from tests.corpus.harness import made, options

    for case in CASES:
        with tempfile.TemporaryDirectory(dir=work) as folder:
            log_dir = str(made(case, Path(folder)).log_dir)
            yield case.name, _planned(partial(make_plan, log_dir, options(case)))


def _of_scenes(work: Path) -> Iterator[tuple[str, str]]:
    from krepair.plan import planfile
    from tools.torture.scenes import SCENES, build, every_keep

    for name in every_keep(SCENES):
        yield name, planfile.dumps(build(name).plan).decode()


def _of_fixtures(work: Path) -> Iterator[tuple[str, str]]:
    from dataclasses import replace

    from krepair.ops.plan import make_plan
    from krepair.options import Engine, Options
    from tests.builders import NOW_MS
    from tests.fixture_dirs import FIXTURES, unpack

    asked = Options(
        engine=Engine.INLINE,
        now_ms=NOW_MS,
        delete_horizon="4000000000000",
        broker_version="3.9.2",
        only_replica=("*",),
    )
    for archive in sorted(FIXTURES.rglob("*.tar.zst")):
        name = os.fspath(archive.relative_to(FIXTURES)).removesuffix(".tar.zst")
        unpacked = unpack(name, work)
        for log_dir in (
            [unpacked] if unpacked.is_dir() else sorted(filter(Path.is_dir, unpacked.parent.iterdir()))
        ):
            for fixes in FIXES:
                for keep in KEEPS if "," in fixes else KEEPS[:1]:
                    options = replace(asked, fixes=tuple(fixes.split(",")), keep=keep)
                    yield (
                        f"{name} {log_dir.name} {fixes} {keep}",
                        _planned(partial(make_plan, str(log_dir), options)),
                    )


if __name__ == "__main__":
    main()
