"""Messages while Spark takes long to start, or fails to start."""

from __future__ import annotations

import socket

import pytest

from krepair.engine.choice import WorkKind, choose_engine, why_not_reached, why_not_started
from krepair.engine.spark import _reason, slow_start_text
from krepair.errors import RefusedError


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_of_spark_on_this_host_nobody_is_told_to_start_a_worker(master: str) -> None:
    said = slow_start_text(master)
    assert "worker" not in said
    assert "--engine inline" in said


@pytest.mark.parametrize("master", ["spark://somewhere:7077", "spark://localhost:7077"])
def test_of_another_master_it_is_said_that_a_worker_may_be_missing(master: str) -> None:
    said = slow_start_text(master)
    assert master in said
    assert "start a worker" in said


CALLING = "An error occurred while calling None.x.SparkSession."
STOPPED = "Cannot call methods on a stopped SparkContext."


def listening() -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    found.listen()
    return found


def test_a_master_that_cannot_be_reached_is_said_at_once_without_a_start_of_java() -> None:
    with listening() as taken:
        port = taken.getsockname()[1]
        assert why_not_reached(f"spark://127.0.0.1:{port}") == ""
        assert why_not_reached(f"spark://127.0.0.1:1,127.0.0.1:{port}") == ""
    with pytest.raises(
        RefusedError, match=rf"spark://127\.0\.0\.1:{port} cannot be reached.*Connection refused"
    ):
        choose_engine("spark", f"spark://127.0.0.1:{port}", {WorkKind.READ: 1})


@pytest.mark.parametrize(
    "master", ["spark://", "spark://host", "spark://host:port", "spark://nowhere.invalid:7077"]
)
def test_an_address_that_is_none_is_said(master: str) -> None:
    assert why_not_reached(master)


@pytest.mark.parametrize("master", ["local[2]", "k8s://10.0.0.1:6443", "yarn"])
def test_other_masters_are_left_to_spark(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert why_not_reached(master) == ""


@pytest.mark.parametrize(("master", "why"), [("yarn", "HADOOP_CONF_DIR"), ("yard", "spark://HOST:PORT")])
def test_what_java_would_answer_with_a_trace_is_one_line(
    master: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RefusedError, match=f"the Spark master {master} cannot be reached.*{why}"):
        choose_engine("spark", master, {WorkKind.READ: 1})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{CALLING}\n: java.lang.IllegalStateException: {STOPPED}\n\tat x",
            "took no application for a minute",
        ),
        (
            f"{CALLING}\norg.apache.spark.SparkException: Could not parse it: 'x'\n\tat org.x",
            "Could not parse it: 'x'",
        ),
        ("some words\nmore", "some words"),
    ],
)
def test_of_an_error_of_java_the_cause_is_said_in_one_line(text: str, said: str) -> None:
    found = why_not_started(Exception(text), "spark://m:7077")
    assert said in found
    assert "\n" not in found


def test_of_a_worker_that_cannot_start_python_the_reason_is_said() -> None:
    program = 'Cannot run program "/opt/krepair/bin/python": error=2, No such file or directory'
    text = (
        "An error occurred while calling o722.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Task 0 in stage 0.0 failed, most recent failure: Lost task 0.1 in stage 0.0 (TID 2) (10.0.0.2 "
        f"executor 0): java.io.IOException: {program}\n\tat java.base/java.lang.ProcessBuilder.start\n"
    )
    assert _reason(Exception(text)) == program
