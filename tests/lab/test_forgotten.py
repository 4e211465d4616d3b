"""What Kafka's own loaders say of transactions that a snapshot keeps open and the log has forgotten, and of the fix."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.ops.apply import apply
from tests.builders import NOW_MS
from tests.forgotten import CASES, END, Case, made
from tests.lab.judge import Judge, JudgeError
from tests.lab.starts import VERSIONS
from tests.ops.inline import Inline

pytestmark = [pytest.mark.broker, pytest.mark.slow]
CLOCK_MS = NOW_MS + 60_000
VERBS = Inline(now_ms=CLOCK_MS, fixes=("snapshots",))
NAMES = tuple(".".join(map(str, one)) for one in VERSIONS)


@pytest.fixture(scope="module", params=NAMES)
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    with Judge(request.param) as one:
        yield one


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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_loaders_wait_before_the_fix_and_not_after_it(tmp_path: Path, judge: Judge, case: Case) -> None:
    log_dir = made(tmp_path / "logs", case)
    refuses = case.refuses and judge.version == "2.2.1"
    waits = case.waits
    if judge.version == "4.3.1":  # it tells the first offset that is there
        waits = min((one for one in case.offsets if one >= waits), default=END)
    assert stable(judge, log_dir, case, tmp_path / "copy") == (-1 if refuses else waits)
    report = VERBS.checked(log_dir, broker_version=judge.version)
    assert any(one.rule == "KR803" for one in report.findings) == refuses
    if case.told:
        apply(VERBS.planned(log_dir, broker_version=judge.version), VERBS.options())
        assert stable(judge, log_dir, case, tmp_path / "copy") == case.after
