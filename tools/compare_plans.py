"""Compares the plans that two source trees of this project make, byte for byte except for the version.

    python -m tools.compare_plans --against ../other-tree
    python -m tools.compare_plans --against 5adb171 --part corpus
    python -m tools.compare_plans --record before.json
    python -m tools.compare_plans --against before.json --decisions

Each tree makes its own directories with its own code, and its own plans of them: every case of ``tests/corpus``, every
scene of ``tools/torture`` with every ``--keep``, and every real directory of ``fixtures/`` with each fix alone and with
all of them. What no two runs have in common is left out: the path of the folder of the run, times of files that
were written just now, the plan's own name and digest, and the version of krepair.

For changes that must not change what is planned. Ends with 1 if a plan differs, and shows the first lines that do.
With ``--decisions`` only what is decided counts: status, codes, spans, tallies, and names, sizes and digests of what
results; of a partition without changes its status and code. So plans of different forms can be compared, and of a
refusal only its kind.
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

from krepair.fixes.table import FIXES

PARTS = ("corpus", "scenes", "fixtures")
FIX_WORDS = (
    *(fix.name for fix in FIXES),
    "markers,tail,index,epochs,snapshots,leftovers,checkpoints",
    "compact,tail,index,epochs,snapshots,leftovers,checkpoints",
    "recovery,markers,leftovers,checkpoints",
)
KEEPS = ("inplace", "until-verified")
OF_THE_RUN = frozenset({"looked_at", "tool_version", "plan_id", "digest_of_plan"})
FOLDER_OF_THE_RUN = re.compile(r"(krepair-(scene|compared|copies)-|tmp)[a-z0-9_]+")
LINES_SHOWN = 12


def main() -> None:
    """Run both trees at the same time and compare what they planned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--against", metavar="TREE", help="a work tree of this project, a commit, or a record"
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    parser.add_argument("--decisions", action="store_true", help="compare only what is decided")
    parser.add_argument("--record", metavar="FILE", type=Path, help="write the plans of this tree to a file")
    arguments = parser.parse_args()
    parts = arguments.part or list(PARTS)
    if arguments.record:
        _record(arguments.record, parts)
        return
    if not arguments.against:
        parser.error("--against is missing")
    with tempfile.TemporaryDirectory(prefix="krepair-trees-") as work:
        other = Path(arguments.against)
        records = {"here": Path(work) / "here.json", "there": other.resolve()}
        trees = {"here": Path(__file__).resolve().parent.parent}
        if not other.is_file():
            records["there"] = Path(work) / "there.json"
            is_tree = (other / "krepair").is_dir()
            trees["there"] = (
                other.resolve() if is_tree else _taken_out(arguments.against, Path(work) / "tree")
            )
        runs = [_started(tree, records[name], parts) for name, tree in trees.items()]
        codes = [run.wait() for run in runs]
        if any(codes):
            sys.exit("a tree could not make its plans; see above")
        here, there = (json.loads(file.read_text()) for file in records.values())
    there = {name: text for name, text in there.items() if name.partition(" ")[0] in parts}
    if arguments.decisions:
        here, there = ({name: decisions(text) for name, text in plans.items()} for plans in (here, there))
    sys.exit(compare(here, there))


def _taken_out(commit: str, folder: Path) -> Path:
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


def _started(tree: Path, out: Path, parts: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", os.path.abspath(__file__), "--record", os.fspath(out)]
    command += [word for part in parts for word in ("--part", part)]
    return subprocess.Popen(command, cwd=tree, env=os.environ | {"PYTHONPATH": os.fspath(tree)})


def compare(here: dict[str, str], there: dict[str, str]) -> int:
    """Print the differences between the plans of two trees by name; return 1 if there are any."""
    wrong = alone = 0
    for name in sorted(here.keys() | there.keys()):
        if name not in here or name not in there:
            print(f"{name}: only {'there' if name in there else 'here'}")
            alone += 1
        elif here[name] != there[name]:
            lines = difflib.unified_diff(there[name].splitlines(), here[name].splitlines(), "there", "here")
            print(f"{name}: differs", *list(lines)[:LINES_SHOWN], sep="\n    ")
            wrong += 1
    planned = sum('"status": "change"' in text for text in here.values())
    print(f"{len(here)} plans, {planned} of them with changes: {wrong} differ, {alone} are of one tree only")
    return int(wrong + alone > 0)


OF_PARTITION = (
    *(
        "status",
        "code",
        "log_start_offset",
        "log_end_offset",
        "high_watermark",
        "horizon_ms",
        "kept_last",
        "reasons",
    ),
    *("log_bytes_before", "log_bytes_after", "uncleanable_bytes"),
)
OF_SOURCE = (
    *(
        "base_offset",
        "log_bytes",
        "batches",
        "kept_bytes",
        "kept_batches",
        "kept_records",
        "kept_markers",
        "reasons",
    ),
    *(
        "carried_open",
        "keep_positions",
        "protected",
        "last_position",
        "decisions",
        "aborted_kept",
        "held_markers",
    ),
)
OF_CHANGE = (
    *("rule", "removed", "batches", "records", "last_offset", "mtime_ns", "replaces", "copied", "lines"),
    *("digest_removed", "front_bytes"),
)
OF_KEYS = (
    *("records", "kept", "superseded", "tombstones_dropped", "tombstones_kept", "aborted", "keyless", "keys"),
    *("rewritten", "emptied", "tombstones", "file_bytes", "bytes_before", "bytes_after"),
)


def decisions(text: str) -> str:
    """Extract what a comparable plan decides, independent of the plan's form; for a refusal, its kind."""
    if not text.startswith("{"):
        return text.partition(":")[0]
    plan = json.loads(text)
    decided = {
        "order": [plan["commit"]["order"], plan["commit"]["fence"]],
        "risks": sorted(risk["code"] for risk in plan["risks"]),
        "partitions": {partition["folder"]: _of_partition(partition) for partition in plan["partitions"]},
        "root": [_of_change(change) for change in (plan.get("root") or {}).get("changes", ())],
    }
    return json.dumps(decided, indent=1, sort_keys=True)


def _of_partition(partition: dict[str, Any]) -> dict[str, Any]:
    span, keys, evidence = (partition.get(name) or {} for name in ("span", "compaction", "evidence"))
    if not partition.get("changes"):
        return _only(partition, ("status", "code", "uncleanable_bytes"))
    return _only(partition, OF_PARTITION) | {
        "span": _only(span, ("start_offset", "end_offset", "limit")),
        "keys": _only(keys, OF_KEYS),
        "evidence": evidence.get("kind", ""),
        "changes": [_of_change(change) for change in partition.get("changes", ())],
    }


def _of_change(change: dict[str, Any]) -> dict[str, Any]:
    return _only(change, OF_CHANGE) | {
        "results": _results(change),
        "undo": change.get("undo", {}).get("type", ""),
        "sources": [
            _only(source, OF_SOURCE) | {"keys": _only(source.get("compacted") or {}, OF_KEYS)}
            for source in change.get("sources", ())
        ],
    }


def _results(change: dict[str, Any]) -> dict[str, list[Any]]:
    """Map each file name to its future size and digest; to nothing for a file that goes."""
    results: dict[str, list[Any]] = {}
    if change["type"] == "roll segment":
        results |= {_named(change["base_offset"], suffix): [0] for suffix in (".log", ".index", ".timeindex")}
    results |= {name: [] for name in (*change.get("names", ()), *change.get("goes", ()))}
    results |= {name: [] for name in change.get("removes_snapshots", ())}
    results |= {_named(source["base_offset"], ".log"): [] for source in change.get("sources", ())}
    if "log_bytes" in change:
        results[_named(change["base_offset"], ".log")] = [change["log_bytes"]]
    if "size_after" in change:
        stays = change["size_after"] >= 0
        results[change["name"]] = [change["size_after"], change["digest_after"]] if stays else []
    results |= {
        file["name"]: [file["size_after"], file["digest_after"]] for file in change.get("companions", ())
    }
    results |= {file["name"]: [file["size"], file["digest"]] for file in change.get("makes", ())}
    return results


def _named(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def _only(value: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value[name] for name in names if value.get(name) not in (None, "", [], {}, ())}


# -- inside one tree: everything that is imported from here on is of that tree


def _record(out: Path, parts: list[str]) -> None:
    makers: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
        "corpus": _of_corpus,
        "scenes": _of_scenes,
        "fixtures": _of_fixtures,
    }
    began = time.time_ns()
    record: dict[str, str] = {}
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="krepair-compared-", dir=memory) as work:
        for part in parts:
            for name, text in makers[part](Path(work)):
                record[f"{part} {name}"] = comparable(text, began)
    out.write_text(json.dumps(record))


def comparable(text: str, began: int) -> str:
    """Remove from a plan what no two runs have in common; keep a refusal as it is."""
    if not text.startswith("{"):
        return FOLDER_OF_THE_RUN.sub("FOLDER", text)

    def plain(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            top = "format_version" in value
            return {
                key: plain(element, "digest_of_plan" if top and key == "digest" else key)
                for key, element in value.items()
            }
        if isinstance(value, list):
            return [plain(element) for element in value]
        if name in OF_THE_RUN:
            return "of this run"
        if name == "mtime_ns" and value >= began:
            return "just now"
        return FOLDER_OF_THE_RUN.sub("FOLDER", value) if isinstance(value, str) else value

    return json.dumps(plain(json.loads(text)), indent=1)


def _text(plan: Any) -> str:
    """Format a plan with every field, whatever the tree's plan format leaves out."""
    from krepair.plan import planfile

    written: bytes = getattr(planfile, "in_full", planfile.dumps)(plan)
    return written.decode()


def _planned(make: Callable[[], Any]) -> str:
    from krepair.errors import KrepairError

    try:
        return _text(make())
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
    from tools.torture.scenes import SCENES, build, every_keep

    for name in every_keep(SCENES):
        yield name, _text(build(name).plan)


def _of_fixtures(work: Path) -> Iterator[tuple[str, str]]:
    from dataclasses import replace

    from krepair.ops.plan import make_plan
    from krepair.options import EngineName, Options
    from tests.builders import NOW_MS
    from tests.fixture_dirs import FIXTURES, unpack

    options_typed = Options(
        engine=EngineName.INLINE,
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
            for fixes in FIX_WORDS:
                for keep in KEEPS if "," in fixes else KEEPS[:1]:
                    options = replace(options_typed, fixes=tuple(fixes.split(",")), keep=keep)
                    yield (
                        f"{name} {log_dir.name} {fixes} {keep}",
                        _planned(partial(make_plan, str(log_dir), options)),
                    )


if __name__ == "__main__":
    main()
