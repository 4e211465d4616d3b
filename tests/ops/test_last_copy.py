"""Before a way out that loses data, every page names the one that loses nothing: another replica may have the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.options import LOSS_RULES
from tests import builders
from tests.flips import flip
from tests.hostile.verbs import run

SAID = "If another replica is in sync, nothing has to be lost"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A batch in the middle of a log has a wrong CRC (KR302)."""
    made = builders.LogDir(tmp_path / "logs")
    partition = made.partition("orders", 0)
    partition.segment(*(builders.data(place, 1) for place in range(3)))
    partition.segment(builders.data(3, 1))
    made.write(clean_stop=True)
    log = tmp_path / "logs" / "orders-0" / f"{0:020d}.log"
    flip(log, bits=0xFF)
    return tmp_path / "logs"


@pytest.mark.parametrize(
    "words", [("check", "--partition", "orders-0"), ("check", "--rule", "KR302"), ("plan", "--fix", "tail")]
)
def test_what_loses_nothing_stands_before_what_loses_data(words: tuple[str, ...], log_dir: Path) -> None:
    ran = run(words[0], str(log_dir), *words[1:], "--engine", "inline")
    assert ran.code == ExitCode.FOUND
    assert ran.out.index(SAID) < ran.out.index("--fix tail --accept-data-loss KR302:orders-0:1")


def test_explain_says_it_too() -> None:
    for rule in LOSS_RULES:
        assert SAID in run("explain", rule).out
    assert SAID not in run("explain", "KR301").out
