"""What ends a start, or puts folders aside: the forecast of each state is what a real broker of 4.3.1 then does."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from krepair.checks.catalogue import RULES, StartEffect, start_of
from krepair.ops.check import check
from krepair.ops.reports import CheckReport
from krepair.options import Engine, Options
from tests.builders import NOW_MS
from tests.fixture_dirs import unpack
from tests.lab.jvm import java
from tests.lab.ports import free_port
from tests.start.agreement import disagreements
from tests.start.states import ALL, METADATA, STATES, State, configuration

SECONDS = 12


def made(state: State, role: str, tmp_path: Path) -> tuple[list[Path], Path]:
    """The log directories of a state, and the configuration of its node."""
    log_dir = unpack("kraft-4.3.1", tmp_path)
    more = state.make(log_dir) or {}
    lines = configuration(log_dir, role, more, (free_port(), free_port()))
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return [Path(path) for path in lines["log.dirs"].split(",")], config


def checked(log_dirs: list[Path], config: Path | None) -> CheckReport:
    options = Options(engine=Engine.INLINE, now_ms=NOW_MS, config=None if config is None else str(config))
    return check([str(path) for path in log_dirs], options)


def foretold(report: CheckReport) -> dict[str, str]:
    return {line.partition: line.expected for one in report.log_dirs for line in one.forecast}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
@pytest.mark.parametrize("role", ["alone", "broker"])
def test_the_forecast_says_what_ends_the_start_and_what_is_put_aside(
    state: State, role: str, tmp_path: Path
) -> None:
    report = checked(*made(state, role, tmp_path))
    said = foretold(report)
    ends = state.ends if role == "alone" else state.broker_ends
    # Without its controllers a broker loads no partition, so that nothing is seen of what they would tell it.
    unseen = role == "broker" and state.ends and not state.broker_ends
    if ends:
        assert set(said.values()) == {"refuse"}
    elif role == "alone":
        assert {name for name, expected in said.items() if expected == "stray"} == state.aside
        assert "refuse" not in said.values()
    elif not unseen:
        assert "refuse" not in said.values()
        if state.aside == ALL or len(state.aside) > 1:
            assert "stray" not in said.values()  # its controllers know the topics


@pytest.mark.parametrize("state", [one for one in STATES if one.aside == ALL], ids=lambda state: state.name)
def test_without_a_configuration_what_is_absent_is_no_alarm(state: State, tmp_path: Path) -> None:
    log_dirs, _ = made(state, "alone", tmp_path)
    report = checked(log_dirs, None)
    assert set(foretold(report).values()) == {"start"}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_finding_that_ends_the_start_never_stands_beside_just_start(state: State, tmp_path: Path) -> None:
    report = checked(*made(state, "alone", tmp_path))
    if len(report.log_dirs) == 1:
        assert disagreements(report.log_dirs[0]) == []
    found = [one for each in report.log_dirs for one in each.findings]
    if {start_of(one) for one in found} & {StartEffect.ENDS, StartEffect.DIRECTORY}:
        assert set(foretold(report).values()) == {"refuse"}
    for one in found:
        if "does not start" in one.evidence and one.rule != "KR408":
            assert start_of(one) is not StartEffect.NONE, one
        if one.partition == METADATA:
            assert (one.fix, one.command) == ("none", "")


def test_rules_that_say_the_broker_does_not_start_may_end_a_start() -> None:
    silent = {
        "KR204",
        "KR301",
        "KR304",
        "KR305",
        "KR401",
        "KR405",
        "KR604",
    }  # by case: their findings stand beside a KR803
    for rule in RULES.values():
        if "does not start" in rule.danger and rule.start is StartEffect.NONE:
            assert rule.code in silent | {"KR407", "KR408", "KR605", "KR610"}, rule.code


@pytest.mark.broker
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_broker_of_4_3_1_does_it(state: State, tmp_path: Path) -> None:
    log_dirs, config = made(state, "alone", tmp_path)
    log = tmp_path / "broker.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(
            java("4.3.1", "kafka.Kafka", str(config)), stdout=out, stderr=subprocess.STDOUT
        )
        try:
            end = time.monotonic() + SECONDS
            aside: set[str] = set()
            while process.poll() is None and time.monotonic() < end:
                aside = {
                    name.rpartition(".")[0]
                    for path in log_dirs
                    for name in os.listdir(path)
                    if name.endswith("-stray")
                }
                text = log.read_text(errors="replace")
                loaded = "Finished loading offsets" in text or "Kafka Server started" in text
                if aside == state.aside and not state.ends and (loaded or aside):
                    break
                time.sleep(0.2)
            assert (process.poll() is not None) == state.ends, log.read_text(errors="replace")[-3000:]
            assert aside == state.aside
        finally:
            process.kill()
            process.wait()
    shutil.rmtree(tmp_path, ignore_errors=True)
