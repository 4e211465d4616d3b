"""Coverage-guided fuzzing of every decoder, bounded in time and memory.

    python -m tools.torture --part fuzz                       each decoder for a minute
    python -m tools.torture --part fuzz --samples 600         for longer
    python -m tools.torture --replay fuzz:plans:FILE          one input again, with its traceback

What is fuzzed, and what must hold, is in ``tests.fuzz.decoders``. Each decoder runs in a process of its own under
libFuzzer (atheris), with a limit for the memory of the process and for the time of one input; what it has found worth
keeping stays in ``.torture/fuzz``, so that a run goes on where the last one was stopped. An input that fails is written
to ``.torture/fuzz/failed``; made small, it belongs into ``tests/fuzz/inputs/<decoder>``, where the gate replays it.

Only Python is seen by the guide: what msgspec and numpy decode in C is fuzzed, but not guided.
"""

from __future__ import annotations

import importlib.util
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
MOST_MEGABYTES = 2048
MOST_MEGABYTES_OF_ALL = 8192
"""Of the process: atheris keeps some 2 kB for each input of a few decoders. The same calls without it keep nothing."""
MOST_SECONDS_OF_ONE = 10
MOST_INPUT_BYTES = 32_768
JSON_SHARE = 0.9
"""How often a value is changed instead of bytes, where an input is JSON."""
SECONDS = 60


class Figures(NamedTuple):
    """Result of one run.

    Attributes:
        seconds: duration in seconds.
        runs: number of inputs tried.
        failed: files of inputs on which the decoder failed.
    """

    seconds: int
    runs: int
    failed: list[str]


def fuzz_here(name: str, seconds: str, seed: str) -> None:
    """Fuzz one decoder in this process, which libFuzzer ends."""
    import atheris  # installed only for this

    with atheris.instrument_imports(include=["krepair"], enable_loader_override=False):
        from tests.fuzz.decoders import DECODERS, change_json
    decoder = next(decoder for decoder in DECODERS if decoder.name == name)
    inputs = WORK / name
    inputs.mkdir(parents=True, exist_ok=True)
    for number, seed_bytes in enumerate(decoder.seeds()):
        (inputs / f"seed-{number}").write_bytes(seed_bytes)
    failed = WORK / "failed"
    failed.mkdir(exist_ok=True)
    arguments = [
        sys.argv[0],
        str(inputs),
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={MOST_MEGABYTES_OF_ALL}",
        f"-malloc_limit_mb={MOST_MEGABYTES}",
        f"-timeout={MOST_SECONDS_OF_ONE}",
        f"-max_len={MOST_INPUT_BYTES}",
        f"-artifact_prefix={failed}/{name}-",
        f"-seed={seed}",
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
    command = [sys.executable, "-m", "tools.torture.fuzz", name, str(seconds), str(seed)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, errors="replace", check=False
    )
    log = done.stderr + done.stdout
    (WORK / f"{name}.log").write_text(log)
    runs = re.findall(r"^#(\d+)", log, re.MULTILINE) or ["0"]
    failed = sorted(re.findall(r"Test unit written to (\S+)", log))
    if done.returncode != 0 and not failed:
        print(log[-2000:])
        failed = [f"the process ended with {done.returncode}, see {WORK / f'{name}.log'}"]
    return Figures(round(time.monotonic() - started), int(runs[-1]), failed)


def run(seeds: range, _workdir: Path, state: Any) -> None:
    """Fuzz each decoder for a minute per seed, as a part of ``make torture``."""
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
    """Decode one input again, ``decoder:file``; return the traceback, or an empty string."""
    from tests.fuzz.decoders import DECODERS

    name, _, file = case.partition(":")
    try:
        next(d for d in DECODERS if d.name == name).attempt(Path(file).read_bytes())
    except Exception:  # any at all is a finding
        return traceback.format_exc().splitlines()
    return []


if __name__ == "__main__":
    fuzz_here(*sys.argv[1:])
