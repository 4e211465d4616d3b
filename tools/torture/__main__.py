"""``make torture``: kills, failing calls, two plans at once, power cuts, flipped bits, mutants, by the ten thousand.

    python -m tools.torture                               all parts, for as long as they take
    python -m tools.torture --part kills --seconds 600    one part, ten minutes of it
    python -m tools.torture --part kills --scene keys     one scene of it
    python -m tools.torture --on /some/ext4/folder        on another file system than memory
    python -m tools.torture --replay kills:markers:0:apply@17b.apply.undo
    python -m tools.torture --report                      the table of figures, nothing is run
    python -m tools.torture --goals                       until enough of each is done; see tools/torture/goals.py

It can be stopped at any time and continued by the same command; what was done is in ``.torture/``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tools.torture import faults, goals
from tools.torture.state import CHANGED, State, commit_here, source_digest

STATE: Final = Path(".torture")


class Module(Protocol):
    """Interface of a part's module."""

    run: Callable[[range, Path, State], None]
    replay: Callable[[str, Path], list[str]]


class Part(NamedTuple):
    """One part of the programme.

    Attributes:
        name: name as typed, and of its module, which is imported on demand.
        about: one line for the table.
        seeds: number of seeds in a full run.
        on_disk: true if the file system matters, so that results are counted for each.
    """

    name: str
    about: str
    seeds: int = 1
    on_disk: bool = False


PARTS: Final = (
    Part("kills", "processes killed at a call that changes a file", on_disk=True),
    Part("failing_calls", "calls that fail, or move too little", on_disk=True),
    Part(
        "two_plans",
        "two plans of one log directory at once, with kills and failing calls in any order",
        on_disk=True,
    ),
    Part("power_loss", "power cuts, by a model of what is durable"),
    Part("loads", "trees of crashes loaded by Kafka's own classes"),
    Part("brokers", "trees of power losses that real brokers start on"),
    Part(
        "clusters",
        "real clusters of three: random histories with krepair in them, and healthy ones compared",
        seeds=2,
    ),
    Part("between", "killed trees that real brokers serve, write to, clean and roll before the next verb"),
    Part("visits", "killed trees to which a broker or a person came before the next verb", on_disk=True),
    Part("bits", "bits flipped in plans, journals, staged and kept files"),
    Part("records", "damaged journals, and the way out of them"),
    Part("crafted", "crafted plans and journals, and folders with traps, also between look and use"),
    Part("surroundings", "disks that turn read-only, clocks, deleted topics, limits, two log directories"),
    Part("replicas", "histories of made clusters with krepair in them"),
    Part("suites", "tests of which the gate takes a sample, with all that they can try"),
    Part("copies", "log directories that are copied after any step, then every verb", on_disk=True),
    Part("truths", "damaged partitions with a known truth, mended, and started by Kafka's own classes"),
    Part("kafka_tests", "folders of Kafka's own unit tests, against Kafka's own classes"),
    Part("mutants", "mutations of the product that tests must notice"),
    Part("fuzz", "decoders fed with what coverage guides to"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programme; gives 0 if nothing was wrong, 1 otherwise."""
    options = _parser().parse_args(arguments)
    if options.goals and not set(options.part or ()) <= goals.GOALS.keys():
        print(f"--goals: the parts that have one are {', '.join(goals.GOALS)}", file=sys.stderr)
        return 64
    if options.goals and options.report:
        return _report_goals(options)
    faults.start_again(["-m", "tools.torture", *(sys.argv[1:] if arguments is None else arguments)])
    faults.own_control()  # its file goes now, whichever parts are run
    parts = {part.name: part for part in PARTS}
    with tempfile.TemporaryDirectory(prefix="krepair-torture-", dir=options.on or _memory()) as work:
        if options.replay:
            return _replay(parts, options.replay, Path(work))
        chosen = [parts[name] for name in options.part or (goals.GOALS if options.goals else parts)]
        file_system = file_system_of(Path(work))
        states = [
            State(
                None if options.forget else _folder_of(options),
                part.name,
                file_system if part.on_disk else "",
                seconds=options.seconds,
                samples=options.samples or (goals.GOALS[part.name].samples if options.goals else None),
                scenes=options.scene,
                enough=goals.is_enough if options.goals else lambda state: False,
            )
            for part in chosen
        ]
        if not options.report:
            for part, state in zip(chosen, states, strict=True):
                if options.goals:
                    for seeds in goals.seeds_until_reached(
                        state, options.seeds.start if options.seeds else 0
                    ):
                        _run(part, state, seeds, Path(work))
                else:
                    _run(part, state, options.seeds or range(part.seeds), Path(work))
    print(table(chosen, states))
    if options.goals and not options.forget:
        return _report_goals(options)
    return 1 if any(state.all_wrong for state in states) else 0


def _report_goals(options: argparse.Namespace) -> int:
    """Print the table of the goals; return 0 if all are reached on this commit, 1 otherwise."""
    states, here = goals.states_of(_folder_of(options), options.part or goals.GOALS), commit_here()
    print(goals.table(states, here))
    return 0 if all(map(goals.is_reached, states)) and here and not here.endswith(CHANGED) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.torture", description=__doc__.partition("\n")[0])
    names = [part.name for part in PARTS]
    parser.add_argument("--part", action="append", choices=names, help="only this part (repeatable)")
    parser.add_argument(
        "--seconds", type=float, help="stop each part after so long; the same command continues"
    )
    parser.add_argument("--seeds", type=_range, help="FIRST-LAST instead of the seeds of a full run")
    parser.add_argument(
        "--samples",
        type=float,
        help="only so many cases of each unit; 0.5: one of every other",
    )
    parser.add_argument(
        "--scene", action="append", default=[], help="only this scene (repeatable), where a part has scenes"
    )
    parser.add_argument("--on", metavar="DIR", help="run on the file system of this folder (default: memory)")
    parser.add_argument("--replay", metavar="CASE", help="run one case again, as a failure names it")
    parser.add_argument(
        "--goals", action="store_true", help="go on with new seeds until as much is done as a release wants"
    )
    parser.add_argument("--report", action="store_true", help="only print the table")
    parser.add_argument(
        "--state", default=str(STATE), help="where to keep what was done (default: %(default)s)"
    )
    parser.add_argument("--forget", action="store_true", help="neither read nor keep what was done")
    return parser


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def file_system_of(path: Path) -> str:
    """Return the type of a path's file system, as ``ext4``."""
    done = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=False)
    return {"ext2/ext3": "ext4"}.get(done.stdout.strip(), done.stdout.strip() or "unknown")


def _load(part: Part) -> Module:
    return importlib.import_module(f"tools.torture.{part.name}")  # type: ignore[return-value]


def _run(part: Part, state: State, seeds: range, work: Path) -> None:
    print(f"{part.name}: {part.about}", flush=True)
    _load(part).run(seeds, work, state)


def _folder_of(options: argparse.Namespace) -> Path:
    """Return the folder of this source's states: goals use other samples, so their units differ."""
    return Path(options.state) / source_digest() / ("goals" if options.goals else "")


def _replay(parts: dict[str, Part], text: str, work: Path) -> int:
    name, _, case = text.partition(":")
    if name not in parts:
        print(f"{text}: {name!r} is no part; the parts are {', '.join(parts)}", file=sys.stderr)
        return 64
    wrong = _load(parts[name]).replay(case, work)
    for each in wrong:
        print(each)
    print(f"{len(wrong)} wrong")
    return 1 if wrong else 0


def table(parts: Sequence[Part], states: Sequence[State]) -> str:
    """Return the figures in Markdown."""
    commit = commit_here()
    lines = ["", "| Part | On | Commit | Day | Figures | Wrong |", "|---|---|---|---|---|---|"]
    for part, state in zip(parts, states, strict=True):
        figures = state.figures
        wrong = figures.pop("wrong", 0)
        if not state.date:
            continue
        shown = ", ".join(f"{count:,} {name}" for name, count in sorted(figures.items()))
        on = f"{state.file_system or 'any'} | {commit or '?'}"
        lines.append(f"| {part.about} | {on} | {state.date} | {shown} | {wrong:,} |")
    lines.append("")
    lines.append(f"Linux {platform.release()}, Python {platform.python_version()}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
