"""Calls to Spark that are in progress when a run ends early."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from krepair.engine import spark
from krepair.engine.spark import run_waves
from krepair.errors import RefusedError, UnreadableError

LONG_S = 60.0


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "CHECK_EVERY_S", 0.02)


class LateJob:
    """A job that Spark knows only after the first cancel has looked for jobs, as on a machine under load."""

    def __init__(self) -> None:
        self.cancels = 0
        self._known, self._ended = threading.Event(), threading.Event()

    def collect(self) -> None:
        assert self._known.wait(LONG_S), "never cancelled"
        assert self._ended.wait(LONG_S), "cancelled before it was known, and then never again"
        raise RuntimeError("job was cancelled")

    def cancel(self) -> None:
        self.cancels += 1
        if self._known.is_set():
            self._ended.set()
        self._known.set()


def refuse() -> None:
    raise RefusedError("no worker")


def test_a_job_that_begins_after_the_cancel_is_cancelled_too() -> None:
    job = LateJob()
    with pytest.raises(RefusedError, match="no worker"):
        list(run_waves(iter([job.collect]), refuse, job.cancel))
    assert job.cancels >= 2


def test_a_wave_that_cannot_be_made_ends_those_that_were_sent_before() -> None:
    job = LateJob()

    def made() -> Iterator[Callable[[], None]]:
        yield job.collect
        raise UnreadableError("the log directory is gone")

    with pytest.raises(UnreadableError, match="gone"):
        list(run_waves(made(), lambda: None, job.cancel))
    assert job.cancels >= 2


def test_a_reader_that_stops_early_leaves_no_wave_behind() -> None:
    job = LateJob()
    results = run_waves(iter([lambda: None, job.collect]), lambda: None, job.cancel)
    next(results).result()
    results.close()
    assert job.cancels >= 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("krepair-wave")]


def test_more_waves_than_go_at_once_are_all_answered() -> None:
    calls = (partial(int, number) for number in range(20))
    ended = [wave.result() for wave in run_waves(calls, lambda: None, lambda: None)]
    assert sorted(ended) == list(range(20))
