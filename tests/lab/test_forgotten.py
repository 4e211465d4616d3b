"""Kafka's own loaders on transactions that a snapshot keeps open and the log has forgotten, and on the fix."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.ops.apply import apply
from tests.builders import NOW_MS
from tests.forgotten import CASES, END, Case, history, made
from tests.lab.jars import LOADER_VERSIONS, SINCE_4, VERSIONS
from tests.lab.judge import Judge, JudgeError
from tests.ops.inline import Inline

pytestmark = [pytest.mark.broker, pytest.mark.slow]
EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
CLOCK_MS = NOW_MS + 60_000
DAY_MS = 86_400_000
SAMPLE = range(21, 41)
VERBS = Inline(now_ms=CLOCK_MS, fixes=("snapshots",))


JudgeOf = Callable[[str], Judge]


def stable(judge: Judge, log_dir: Path, case: Case, scratch: Path) -> int:
    """The last stable offset after a start; -1 if the loader throws."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(log_dir / "t-0", scratch / "t-0")
    given = {"clean": case.clean, "recovery_point": case.point, "log_start": case.log_start or 0}
    try:
        loaded = judge.load(scratch / "t-0", now_ms=CLOCK_MS, **given)
    except JudgeError as error:
        if "NullPointerException" in str(error):
            return -1
        raise
    return loaded.stable_offset


@pytest.mark.parametrize(
    ("version", "case"),
    [
        pytest.param(version, case, id=f"{version}-{case}")
        for number, case in enumerate(CASES)
        for turn, version in enumerate(LOADER_VERSIONS)
        # Each case with every other version, in turns.
        if EVERY or (number + turn) % 2 == 0 or (case.refuses and version == "2.2.1")
    ],
)
def test_loaders_wait_before_the_fix_and_not_after_it(
    tmp_path: Path, judge: JudgeOf, version: str, case: Case
) -> None:
    log_dir = made(tmp_path / "logs", case)
    refuses = case.refuses and version == "2.2.1"
    waits = case.waits
    if version in SINCE_4:  # it tells the first offset that is there
        waits = min((one for one in case.offsets if one >= waits), default=END)
    assert stable(judge(version), log_dir, case, tmp_path / "copy") == (-1 if refuses else waits)
    report = VERBS.checked(log_dir, broker_version=version)
    assert any(one.rule == "KR803" for one in report.findings) == refuses
    if case.told:
        apply(VERBS.planned(log_dir, broker_version=version), VERBS.options())
        assert stable(judge(version), log_dir, case, tmp_path / "copy") == case.after


def cleaned(judge: Judge, folder: Path, chance: random.Random) -> None:
    """Let the cleaner of a version work until nothing is left to do, when all producers are forgotten.

    A broker has written its snapshots before: those of the segments that are left come back as they were.
    """
    before = {path: path.read_bytes() for path in folder.glob("*.snapshot")}
    settings = {"cleanup.policy": "compact", "segment.bytes": chance.choice([100, 150, 300])}
    settings |= {"index.interval.bytes": 200, "segment.index.bytes": 4096, "delete.retention.ms": 1000}
    common = {"settings": settings, "now_ms": CLOCK_MS + 8 * DAY_MS, "expire_producers": True}
    first, later = (0, 2**60) if judge.version == "2.2.1" else (1, CLOCK_MS + 10**10)
    judge.clean(folder, first_dirty=0, horizon=first, **common)
    judge.fixpoint(folder, horizon=later, **common)
    for path in [*folder.glob("*.snapshot"), *folder.glob("*.deleted")]:
        path.unlink()
    for path, content in before.items():
        if path.with_suffix(".log").exists():
            path.write_bytes(content)


def opened(judge: Judge, folder: Path, point: int, scratch: Path) -> set[int] | None:
    """The producers with an open transaction after a start; None if the loader throws."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(folder, scratch / "t-0", ignore=shutil.ignore_patterns("krepair~*"))
    try:
        loaded = judge.load(scratch / "t-0", clean=False, recovery_point=point, now_ms=CLOCK_MS)
    except JudgeError as error:
        if "NullPointerException" in str(error):
            return None
        raise
    return {one.producer_id for one in loaded.producers if one.open_from is not None}


def test_logs_that_kafkas_cleaner_has_cleaned(tmp_path: Path, judge: JudgeOf) -> None:
    """What a start takes for open beyond what the log says is told, and ended; what is really open is not."""
    judges = {version: judge(version) for version in LOADER_VERSIONS}
    seen: Counter[str] = Counter()
    for seed in SAMPLE:
        chance = random.Random(seed)
        log_dir, scratch = tmp_path / str(seed), tmp_path / "copy"
        directory, really = history(chance, log_dir)
        directory.write(clean_stop=False)
        folder = log_dir / "t-0"
        cleaned(judges[chance.choice(VERSIONS)], folder, chance)
        point = chance.choice([int(path.stem) for path in sorted(folder.glob("*.log"))])
        (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {point}\n")
        end = max(int(path.stem) for path in folder.glob("*.log"))
        (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {end}\n")
        bare = tmp_path / "bare"
        shutil.rmtree(bare, ignore_errors=True)
        shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("*.snapshot"))
        by_log = opened(judges["2.8.2"], bare, 0, scratch) or set()
        told = any(one.rule == "KR505" for one in VERBS.checked(log_dir).findings)
        seen["told" if told else "not told"] += 1
        for each in judges.values():
            now = opened(each, folder, point, scratch)
            if now is None:
                assert (told, each.version) == (True, "2.2.1"), seed
                seen["does not start"] += 1
            else:
                assert told == bool(now - by_log), (seed, each.version)
        if told:
            apply(VERBS.planned(log_dir), VERBS.options())
        for each in judges.values():
            after = opened(each, folder, point, scratch)
            assert after is not None, seed
            assert really <= after <= by_log, (seed, each.version)
    assert min(seen["told"], seen["not told"], seen["does not start"]) > 0, seen
