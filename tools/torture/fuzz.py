"""Coverage-guided fuzzing of every decoder, bounded in time and memory.

    python -m tools.torture.fuzz                          each decoder for a minute
    python -m tools.torture.fuzz plans --seconds 600      one of them for longer
    python -m tools.torture.fuzz plans --replay FILE      one input again, with its traceback

What is fuzzed, and what must hold, is in ``tests.fuzz.decoders``. Each decoder runs in a process of its own under
libFuzzer (atheris), with a limit for the memory of the process and for the time of one input; what it has found worth
keeping stays in ``.torture/fuzz``, so that a run goes on where the last one was stopped. An input that fails is written
to ``.torture/fuzz/failed``; made small, it belongs into ``tests/fuzz/inputs/<decoder>``, where the gate replays it.

Only Python is seen by the guide: what msgspec and numpy decode in C is fuzzed, but not guided.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".torture" / "fuzz"
FIGURES = WORK / "figures.json"
MOST_MEGABYTES = 2048
MOST_MEGABYTES_OF_ALL = 8192
"""Of the process: atheris keeps some 2 kB for each input of a few decoders. The same calls without it keep nothing."""
MOST_SECONDS_OF_ONE = 10
MOST_INPUT_BYTES = 32_768
JSON_SHARE = 0.9
"""How often a value is changed instead of bytes, where an input is JSON."""
SECONDS = 60


class Figures(NamedTuple):
    """What one run came to.

    Attributes:
        date: of it.
        seconds: it took.
        runs: inputs tried.
        edges: places of the code that were reached.
        failed: files of inputs on which the decoder failed.
    """

    date: str
    seconds: int
    runs: int
    edges: int
    failed: list[str]


def fuzz_here(name: str, options: argparse.Namespace) -> None:
    """Fuzz one decoder in this process; libFuzzer ends it."""
    import atheris  # installed only for this

    with atheris.instrument_imports(include=["krepair"], enable_loader_override=False):
        from tests.fuzz.decoders import DECODERS, change_json
    decoder = next(decoder for decoder in DECODERS if decoder.name == name)
    inputs = WORK / name
    inputs.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(decoder.seeds()):
        (inputs / f"seed-{number}").write_bytes(seed)
    failed = WORK / "failed"
    failed.mkdir(exist_ok=True)
    arguments = [
        sys.argv[0],
        str(inputs),
        f"-max_total_time={options.seconds}",
        f"-rss_limit_mb={MOST_MEGABYTES_OF_ALL}",
        f"-malloc_limit_mb={MOST_MEGABYTES}",
        f"-timeout={MOST_SECONDS_OF_ONE}",
        f"-max_len={MOST_INPUT_BYTES}",
        f"-artifact_prefix={failed}/{name}-",
        f"-seed={options.seed}",
        "-print_final_stats=1",
    ]
    if decoder.json:

        def changed(data: bytes, most: int, seed: int) -> bytes:
            chance = random.Random(seed)
            new = change_json(data, chance) if chance.random() < JSON_SHARE else atheris.Mutate(data, most)
            return new if len(new) <= most else data[:most]

        atheris.Setup(arguments, decoder.attempt, custom_mutator=changed)
    else:
        atheris.Setup(arguments, decoder.attempt)
    atheris.Fuzz()


def fuzz(name: str, seconds: int, seed: int) -> Figures:
    """Fuzz one decoder in a process of its own."""
    started = time.monotonic()
    WORK.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tools.torture.fuzz", name, "--here"]
    command += ["--seconds", str(seconds), "--seed", str(seed)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, errors="replace", check=False
    )
    log = done.stderr + done.stdout
    (WORK / f"{name}.log").write_text(log)
    runs = re.findall(r"^#(\d+)", log, re.MULTILINE) or ["0"]
    edges = re.findall(r"cov: (\d+)", log) or ["0"]
    failed = sorted(re.findall(r"Test unit written to (\S+)", log))
    if done.returncode != 0 and not failed:
        print(log[-2000:])
        failed = [f"the process ended with {done.returncode}, see {WORK / f'{name}.log'}"]
    return Figures(
        time.strftime("%Y-%m-%d"), round(time.monotonic() - started), int(runs[-1]), int(edges[-1]), failed
    )


def run(seeds: range, _workdir: Path, state: Any) -> None:
    """As a part of ``make torture``: each decoder for a minute and seed."""
    from tests.fuzz.decoders import DECODERS

    if importlib.util.find_spec("atheris") is None:
        print("fuzz: atheris is not there; `make torture` installs it from requirements-torture.lock")
        return
    for seed in seeds:
        for decoder in DECODERS:
            unit = f"{decoder.name}-{seed}"
            if state.is_done(unit) or state.time_is_up():
                continue
            # libFuzzer takes 0 for a seed of its own choice
            figures = fuzz(decoder.name, state.most(SECONDS), seed + 1)
            for file in figures.failed:
                state.wrong(f"{decoder.name}:{file}", f"{decoder.name}: something undocumented happened")
            state.keep(unit, {"inputs": figures.runs, "decoders": 1, "seconds": figures.seconds})


def replay(case: str, _workdir: Path) -> list[str]:
    """One input again, ``decoder:file``; gives the traceback, or nothing."""
    from tests.fuzz.decoders import DECODERS

    name, _, file = case.partition(":")
    try:
        next(d for d in DECODERS if d.name == name).attempt(Path(file).read_bytes())
    except Exception:  # any at all is a finding
        return traceback.format_exc().splitlines()
    return []


def main() -> int:
    """Run the command line."""
    from tests.fuzz.decoders import DECODERS

    names = [decoder.name for decoder in DECODERS]
    parser = argparse.ArgumentParser(
        prog="python -m tools.torture.fuzz", description="fuzzing of the decoders"
    )
    parser.add_argument("decoder", nargs="?", choices=names, help="which; all without it")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="for each decoder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=Path, help="decode this one input in this process")
    options = parser.parse_args([argument for argument in sys.argv[1:] if argument != "--here"])
    if options.replay:
        wrong = replay(f"{options.decoder}:{options.replay}", WORK)
        print("\n".join(wrong) or "nothing undocumented happened")
        return 1 if wrong else 0
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    failures = 0
    for name in [options.decoder] if options.decoder else names:
        figures = fuzz(name, options.seconds, options.seed)
        known[name] = figures._asdict()
        FIGURES.write_text(json.dumps(known, indent=2) + "\n")
        print(
            f"{name:20} {figures.runs:>10,} inputs in {figures.seconds} s, {figures.edges} edges", flush=True
        )
        for file in figures.failed:
            print(f"  failed: python -m tools.torture.fuzz {name} --replay {file}", flush=True)
        failures += len(figures.failed)
    return 1 if failures else 0


if __name__ == "__main__":
    if "--here" in sys.argv:
        _parser = argparse.ArgumentParser()
        _parser.add_argument("decoder")
        _parser.add_argument("--here", action="store_true")
        _parser.add_argument("--seconds", type=int)
        _parser.add_argument("--seed", type=int)
        _options = _parser.parse_args()
        fuzz_here(_options.decoder, _options)
    else:
        sys.exit(main())
