"""Damaged partitions with a known truth: a sample of the cases that ``make torture`` tries, and that its judge sees.

The long run is ``python -m tools.torture --part truths``; a failure here is replayed by the same programme.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lab.jars import LATEST
from tools.torture import truths
from tools.torture.truths import FOLDER, Case, Court, Mending, World, smaller, text_of, try_case

pytestmark = pytest.mark.broker

POOL = ("2.2.1", "2.8.2", "3.9.2", LATEST)
SAMPLE = range(1, 71)
LEAST = {"cases": 65, "plans applied": 40, "starts compared": 55, "forecasts compared": 180, "consents": 3}
"""A sample in which less is compared shows too little."""


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    with Court(tmp_path_factory.mktemp("truths")) as court:
        yield court


def test_what_kafka_alone_serves_is_served_after_krepair(court: Court) -> None:
    figures, wrong = truths.Counter[str](), []
    for seed in SAMPLE:
        tried = try_case(Case(seed, POOL), court)
        figures += tried.figures
        if tried.wrong:
            wrong.append(
                f"python -m tools.torture --replay '{truths.PART}:{tried.case}'\n    {text_of(tried)}"
            )
    assert not wrong, "\n".join(wrong)
    assert {name: least for name, least in LEAST.items() if figures[name] < least} == {}, figures


@pytest.mark.parametrize(
    "case",
    [
        Case(7),
        Case(7, POOL, frozenset({"damage0", "told"}), (("tail", "index=regenerate"), ("compact",)), ("3.9.2",), True),
    ],
    ids=str,
)  # fmt: skip
def test_a_case_is_read_back_from_its_name(case: Case) -> None:
    assert Case.of(str(case)) == case
    assert " " not in str(case)


def _cut_the_log(case: Case, world: World) -> Mending:
    """A repair that loses the last bytes of the log."""
    done = original(case, world)
    path = sorted((world.root / FOLDER).glob("*.log"))[-1]
    path.write_bytes(path.read_bytes()[:-1])
    return done


def _show_the_aborted(case: Case, world: World) -> Mending:
    """A repair that forgets which transactions were aborted."""
    done = original(case, world)
    for path in (world.root / FOLDER).glob("*.txnindex"):
        path.write_bytes(b"")
    return done


def _forget_the_producers(case: Case, world: World) -> Mending:
    """A repair that leaves no snapshot."""
    done = original(case, world)
    for path in (world.root / FOLDER).glob("*.snapshot"):
        path.unlink()
    return done


original = truths.mend


@pytest.mark.parametrize(
    ("harm", "kinds"),
    [
        (_cut_the_log, {"LOST", "LOG END", "STABLE OFFSET"}),
        (_show_the_aborted, {"SHOWN"}),
        (_forget_the_producers, {"PRODUCER", "ANSWERS", "SHOWN"}),
    ],
)
def test_a_repair_that_does_harm_is_seen_and_the_case_becomes_smaller(
    harm: object, kinds: set[str], court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truths, "mend", harm)
    for seed in range(1000, 1040):
        case = replace(Case(seed, POOL), fixes=(("epochs", "tail", "index"),))
        tried = try_case(case, court)
        found = {one.kind for one in tried.wrong} & kinds
        if found and "damage0" in tried.told:
            tried.wrong.sort(key=lambda one: one.kind not in kinds)
            least = smaller(tried, court)
            assert (len(least.case.judges), len(least.case.plans[0])) == (1, 1)
            assert least.case.without >= {"told", "replicas", "crash"}
            return
    pytest.fail("no case of these sees it")
