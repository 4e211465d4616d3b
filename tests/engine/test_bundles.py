"""Items that share a Spark task, messages about lost workers, and progress without a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.cli.one_run import LineProgress
from krepair.engine.spark import WorkerWatch, bundled
from krepair.errors import RefusedError

MIB = 1 << 20


@given(st.lists(st.integers(0, 2000 * MIB), max_size=400), st.integers(1, 64))
def test_every_item_is_in_one_task_in_order_and_no_task_is_empty(sizes: list[int], cores: int) -> None:
    tasks = bundled(sizes, cores)
    assert [place for task in tasks for place in task] == list(range(len(sizes)))
    assert all(len(task) for task in tasks)


def test_few_segments_have_a_task_each_and_many_small_ones_share() -> None:
    assert len(bundled([MIB] * 24, 2)) == 24
    assert len(bundled([1000] * 30_000, 8)) <= 500
    assert len(bundled([1000] * 30_000, 1000)) >= 3_700


def test_a_large_segment_does_not_wait_for_small_ones() -> None:
    tasks = bundled([1000] * 500 + [1024 * MIB] * 3 + [1000] * 500, 2)
    large = [task for task in tasks if any(500 <= place < 503 for place in task)]
    assert len(large) == 3


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def watched(counts: list[tuple[float, int]]) -> list[str]:
    """What is said when so many workers are there at these seconds."""
    clock, said, found = Clock(), list[str](), [0]
    watch = WorkerWatch("spark://m:7077", lambda: found[0], said.append, "1g", clock)
    for clock.now, found[0] in counts:
        watch.look()
    return said


def test_workers_that_never_come_are_said_within_half_a_minute_and_once_with_what_to_do() -> None:
    said = watched([(float(second), 0) for second in range(60)])
    assert len(said) == 1
    assert "spark://m:7077 has had no worker for 20 s" in said[0]
    assert "--engine inline" in said[0]


def test_a_worker_that_is_gone_is_said_at_once_and_the_others_go_on() -> None:
    assert watched([(0, 2), (1, 2), (2, 1), (60, 1)]) == [
        "krepair: 1 of 2 Spark workers are gone; the others repeat their work, and nothing is lost"
    ]


def test_when_the_last_worker_goes_the_waiting_begins_and_its_end_is_said() -> None:
    said = watched([(0, 1), (100, 0), (119, 0), (121, 0), (130, 1), (131, 1)])
    assert len(said) == 2
    assert "for 21 s" in said[0]
    assert said[1] == "krepair: 1 Spark workers are available; work resumes"


@pytest.mark.parametrize(
    ("counts", "waited"), [([(0, 0), (59, 0), (60, 0)], 60), ([(0, 1), (1, 0), (300, 0), (301, 0)], 300)]
)
def test_after_a_minute_without_any_worker_or_five_without_the_lost_ones_it_is_given_up(
    counts: list[tuple[float, int]], waited: int
) -> None:
    said = rf"spark://m:7077 has had no worker for {waited} s; .* a free core and 1g of memory"
    watched(counts[:-1])
    with pytest.raises(RefusedError, match=said) as refused:
        watched(counts)
    assert str(refused.value.next_command) == "the same command with --engine inline"


def test_where_the_number_of_workers_is_not_known_nothing_is_said() -> None:
    assert watched([(0, -1), (1000, -1)]) == []


def test_without_a_terminal_a_line_comes_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    progress = LineProgress(clock)
    progress.start("scan", 1000)
    for clock.now in (1.0, 9.0, 10.0, 15.0, 25.0):
        progress.advance(100)
    progress.finish()
    progress.start("quick", 10)
    progress.advance(10)
    assert capsys.readouterr().err.splitlines() == [
        "scan: 300 of 1,000 bytes, 30 %, 10 s",
        "scan: 500 of 1,000 bytes, 50 %, 25 s",
    ]
