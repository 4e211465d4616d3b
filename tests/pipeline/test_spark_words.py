"""What is said when Spark takes long to start."""

from __future__ import annotations

import pytest

from krepair.pipeline.engines.spark import said_of_a_slow_start


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_of_spark_on_this_host_nobody_is_told_to_start_a_worker(master: str) -> None:
    said = said_of_a_slow_start(master)
    assert "worker" not in said
    assert "--engine inline" in said


@pytest.mark.parametrize("master", ["spark://somewhere:7077", "spark://localhost:7077"])
def test_of_another_master_it_is_said_that_a_worker_may_be_missing(master: str) -> None:
    said = said_of_a_slow_start(master)
    assert master in said
    assert "start a worker" in said
