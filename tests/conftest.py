"""Fixtures and rules of the whole suite: which tests need real Kafka, what the marks say, and the judges they share.

``broker``: real Kafka; ``spark``: a Spark session; ``slow``: each call in turn, each place in turn, or many seconds.
``make quick`` runs what has none of the three. A test that starts Java without one of the first two fails.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import settings

from krepair import options
from krepair.durable import tree
from krepair.start import needs
from tests.fixture_dirs import unpack
from tests.lab import jars
from tests.lab.judge import Judge
from tests.ordering import ordered

PROBE = "2.2.1"

EVERY_TOPIC = ("*",)
"""Nearly all tests are about one log directory, often against real cleaners: they plan it as the only replica."""


def pytest_configure(config: pytest.Config) -> None:
    """Let the options say that there is no other replica, where a test does not say anything of other replicas.

    A test with the mark ``replicas`` gets the defaults of the product.
    """
    del config
    plan_as_only_replica(EVERY_TOPIC)


def plan_as_only_replica(topics: tuple[str, ...]) -> None:
    """Set the default of ``only_replica``."""
    defaults = cast("dict[str, object]", options.Options.__init__.__kwdefaults__)
    defaults["only_replica"] = topics
    object.__setattr__(options.OPTIONS["only_replica"], "default", topics)


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all tests look for the words of a page, not for its lines, and none depends on services of this host."""
    monkeypatch.setenv("COLUMNS", "10000")
    monkeypatch.setattr(needs, "UNIT_DIRS", ())


@pytest.fixture(autouse=True)
def _replicas(request: pytest.FixtureRequest) -> Iterator[None]:
    marked = request.node.get_closest_marker("replicas") is not None
    if marked:
        plan_as_only_replica(())
    yield
    if marked:
        plan_as_only_replica(EVERY_TOPIC)


# A busy machine must not fail a property: whole tests have a time limit, single examples none. The gate tries the same
# examples in each run, so that it says of a change only what the change did; ``make torture`` looks for new ones.
settings.register_profile("gate", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("search" if os.environ.get("KREPAIR_EVERY_STATE") == "1" else "gate")


def in_ci() -> bool:
    """Whether a skipped broker test must fail."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def why_no_kafka() -> str:
    """Why real Kafka cannot be had here, or an empty string. Fetching may still fail."""
    return jars.missing_tools(PROBE)


_JAVA = {"java", "javac", "mvn", "spark-submit"}
_java_starts: list[str] | None = None
"""What the running test has started of Java; None where it may start all it wants."""


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and _java_starts is not None:
        words = arguments[1]
        first = words if isinstance(words, str | bytes) else next(iter(words), "")  # type: ignore[call-overload]
        if _is_java(os.fsdecode(first)):
            _java_starts.append(os.fsdecode(first))


def _is_java(command: str) -> bool:
    """Whether a command starts Java; a script that only has the name of one does not."""
    name = os.path.basename(command)
    if name not in {"java", "javac"}:
        return name in _JAVA
    path = shutil.which(command)
    if path is None:
        return False
    with open(path, "rb") as file:
        return file.read(2) != b"#!"


sys.addaudithook(_listen)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests without the marks have no Java: their own starts are listened for, their children find none."""
    global _java_starts
    if item.get_closest_marker("broker") or item.get_closest_marker("spark"):
        return (yield)
    before, _java_starts = os.environ.get("JAVA_HOME"), []
    os.environ["JAVA_HOME"] = "/nonexistent/for-tests-that-are-marked-broker-or-spark"
    try:
        return (yield)
    finally:
        _java_starts = None
        os.environ.pop("JAVA_HOME")
        if before is not None:
            os.environ["JAVA_HOME"] = before


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that collecting makes is garbage: looking for it takes a third of the time, and later on ever again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """PySpark leaves sockets to the garbage collector: that is no leak of ours, and must not fail a later test.

    What is marked ``every_broker`` is left out unless it is asked for.
    """
    items[:] = ordered(items)
    if os.environ.get("KREPAIR_EVERY_BROKER") != "1":
        left_out = [item for item in items if item.get_closest_marker("every_broker")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """What a Spark test leaves is collected while it is still its own."""
    result = yield
    if item.get_closest_marker("spark"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test that starts Java says so by a mark, so that ``make quick`` leaves it out."""
    result = yield
    if _java_starts:
        pytest.fail(f"starts {_java_starts[0]}, but is marked neither broker nor spark", pytrace=False)
    return result


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("broker") is None:
        return
    if reason := why_no_kafka():
        if in_ci():
            pytest.fail(f"broker test skipped under CI: {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Where the jars cannot be fetched a broker test is skipped; under CI any skip of one is a failure."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if item.get_closest_marker("broker") is None:
        return
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, jars.LabUnavailableError) and not in_ci():
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {error}")
    elif report.skipped and in_ci() and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"broker test skipped under CI: {report.longrepr}"


@pytest.fixture(scope="session")
def judge() -> Iterator[Callable[[str], Judge]]:
    """``judge("2.2.1")``: Kafka's own classes of that version, one JVM for the whole session."""
    running: dict[str, Judge] = {}

    def of(version: str) -> Judge:
        if version not in running:
            jars.fetch(version)
            running[version] = Judge(version)
        return running[version]

    yield of
    for each in running.values():
        each.close()


@pytest.fixture
def log_dir_of(tmp_path: Path) -> Callable[[str], Path]:
    """``log_dir_of("offsets-bloat-2.2.0-clean")``: a fresh copy of a real log directory."""
    return lambda name: unpack(name, tmp_path)


@pytest.fixture
def through_os_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is opened by ``os.open``, as where there is no ``openat2``, so that a test can put a fake there."""
    monkeypatch.setattr(tree, "_has_openat2", lambda: False)
