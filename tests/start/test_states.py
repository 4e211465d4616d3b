"""What ends a start, or puts folders aside: the forecast of each state is what a real node then does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.checks.catalogue import RULES, StartEffect, start_of
from tests.fixture_dirs import unpack
from tests.lab.jars import LATEST, SINCE_4
from tests.start.agreement import disagreements
from tests.start.nodes import (
    ROLES,
    Quorum,
    Seen,
    forget_leader,
    others,
    quorum,
    settings,
    started,
    voting,
    written,
)
from tests.start.states import ALL, METADATA, STATES, State, checked, foretold

EVERY = os.environ.get("KREPAIR_EVERY_STATE") == "1"
VERSIONS = ("3.9.2", *SINCE_4)
NO_PORTS = (1, 2, 3, 4)


SAMPLE = {
    (LATEST, "alone"): (
        "as it was",
        "size of a batch",
        "log empty",
        "another topic",
    ),
    (LATEST, "one of three"): (
        "content in",
        "no metadata log",
        "metadata empty",
    ),
    ("3.9.2", "broker"): ("as it was", "above 0", "of one id", "metadata missing"),
}
"""What the gate foretells, and tries on nodes of the latest version; ``KREPAIR_EVERY_STATE=1`` tries everything."""
SAMPLED = [
    (version, role, state)
    for version in VERSIONS
    for role in ROLES
    for state in STATES
    if EVERY or any(words in state.name for words in SAMPLE.get((version, role), ()))
]
FORETOLD = [
    pytest.param(version, role, state, id=f"{version}, {role}, {state.name}")
    for version in VERSIONS
    for role in ROLES
    for state in STATES
    if version == LATEST or (version, role, state) in SAMPLED
]


def made(state: State, of: Quorum, version: str, tmp_path: Path) -> tuple[list[Path], Path]:
    """The log directories of a state, and the configuration of its node."""
    log_dir = unpack(f"kraft-{version}", tmp_path)
    voting(log_dir, of)
    lines = settings(of, 0, log_dir, state.make(log_dir) or {})
    config = written(tmp_path / "server.properties", lines)
    return [Path(path) for path in lines["log.dirs"].split(",")], config


@pytest.mark.parametrize(("version", "role", "state"), FORETOLD)
def test_the_forecast_says_what_ends_the_start_and_what_is_put_aside(
    version: str, role: str, state: State, tmp_path: Path
) -> None:
    said = foretold(checked(*made(state, Quorum(role, NO_PORTS), version, tmp_path), version))
    ends, aside = state.outcome(role, version)
    if ends:
        assert set(said.values()) == {"refuse"}
    else:
        assert "refuse" not in said.values()
        assert {name for name, expected in said.items() if expected == "stray"} == aside


@pytest.mark.parametrize("state", [one for one in STATES if one.aside == ALL], ids=lambda state: state.name)
def test_without_a_configuration_what_is_absent_is_no_alarm(state: State, tmp_path: Path) -> None:
    log_dirs, _ = made(state, Quorum("alone", NO_PORTS), LATEST, tmp_path)
    report = checked(log_dirs, None)
    assert set(foretold(report).values()) == {"start"}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_a_finding_that_ends_the_start_never_stands_beside_just_start(state: State, tmp_path: Path) -> None:
    report = checked(*made(state, Quorum("alone", NO_PORTS), LATEST, tmp_path))
    if len(report.log_dirs) == 1:
        assert disagreements(report.log_dirs[0]) == []
    found = [one for each in report.log_dirs for one in each.findings]
    if {start_of(one) for one in found} & {StartEffect.ENDS, StartEffect.DIRECTORY}:
        assert set(foretold(report).values()) == {"refuse"}
    for one in found:
        if "does not start" in one.evidence and one.rule != "KR408":
            assert start_of(one) is not StartEffect.NONE, one
        if one.partition == METADATA:
            assert (one.fix, str(one.command)) == ("none", "")


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


@pytest.fixture(scope="module")
def beside(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Quorum]]:
    """A version, and the quorum of node 0, whose other controllers run."""
    version, role = request.param
    of, folder = quorum(role), tmp_path_factory.mktemp("others")
    with others(version, of, unpack(f"kraft-{version}", folder), folder / "nodes"):
        yield version, of


@pytest.mark.broker
@pytest.mark.parametrize(
    ("beside", "state"),
    [
        pytest.param((version, role), state, id=f"{version}, {role}, {state.name}")
        for version, role, state in SAMPLED
        if EVERY or version == LATEST
    ],
    indirect=["beside"],
)
def test_a_node_does_it(beside: tuple[str, Quorum], state: State, tmp_path: Path) -> None:
    version, of = beside
    ends, aside = state.outcome(of.role, version)
    log_dirs, config = made(state, of, version, tmp_path)

    def as_expected(seen: Seen) -> bool:
        return not ends and seen.loaded and seen.aside == aside

    seen = started(version, config, log_dirs, as_expected)
    assert seen.up is not ends, seen.log[-3000:]
    assert seen.aside == aside


@pytest.mark.broker
@pytest.mark.every_broker
@pytest.mark.parametrize("version", VERSIONS)
def test_two_of_three_controllers_without_their_log_forget_every_topic(version: str, tmp_path: Path) -> None:
    no_log = next(one for one in STATES if one.name == "no metadata log")
    of = quorum("one of three")
    base = unpack(f"kraft-{version}", tmp_path)
    log_dirs, config = made(no_log, of, version, tmp_path / "0")
    with others(version, of, base, tmp_path / "two", without_log=(1,), not_running=(2,)):
        assert started(version, config, log_dirs, lambda seen: seen.aside == ALL).aside == ALL


@pytest.mark.broker
@pytest.mark.every_broker
@pytest.mark.parametrize("version", VERSIONS)
def test_one_of_three_controllers_after_the_other_loses_its_log_and_fetches_it(
    version: str, tmp_path: Path
) -> None:
    no_log = next(one for one in STATES if one.name == "no metadata log")
    of = quorum("one of three")
    base = unpack(f"kraft-{version}", tmp_path)
    log_dirs, config = made(no_log, of, version, tmp_path / "0")
    with others(version, of, base, tmp_path / "first"):
        seen = started(version, config, log_dirs, lambda seen: seen.loaded)
        assert (seen.up, seen.aside) == (True, frozenset())
    # Node 0 has fetched all. Now the second one: node 0 and node 2 have a leader without node 1.
    forget_leader(log_dirs[0])
    with others(version, of, log_dirs[0], tmp_path / "second", without_log=(1,)):
        seen = started(version, config, log_dirs, lambda seen: seen.loaded)
    assert (seen.up, seen.aside) == (True, frozenset())
