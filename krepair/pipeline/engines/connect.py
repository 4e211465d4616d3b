"""Spark Connect: a session on a server, which keeps its own settings and tells nobody how many workers it has."""

from __future__ import annotations

import contextlib
import importlib.util
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from krepair.pipeline.engines.waves import run_waves
from krepair.pipeline.engines.worker_watch import WorkerWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX: Final = "sc://"
DEFAULT_PORT: Final = 15002
_PACKAGES: Final = ("grpc", "grpc_status", "google.rpc")
_MEMORY: Final = "the server's spark.executor.memory"


def is_connect(master: str) -> bool:
    """Whether a master is the address of a Spark Connect server."""
    return master.startswith(PREFIX)


def why_not_installed() -> str:
    """What this installation lacks for Spark Connect, one sentence; empty if nothing."""
    missing = [name for name in _PACKAGES if not _is_there(name)]
    return (
        f"it needs Python packages that are not installed ({', '.join(missing)}): pip install 'krepair[connect]'"
        if missing
        else ""
    )


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def connect_session(master: str, settings: Mapping[str, str], say: Callable[[str], None]) -> SparkSession:
    """A session on a Spark Connect server that has a worker.

    Args:
        master: as ``sc://host:15002``.
        settings: that a client may set.
        say: takes one line for a person.

    Raises:
        RefusedError: no worker of the server does anything for a minute.
    """
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("krepair").remote(master).getOrCreate()
    for name, value in settings.items():
        session.conf.set(name, value)
    wait_for_a_worker(session, master, say)
    return session


def wait_for_a_worker(session: SparkSession, master: str, say: Callable[[str], None]) -> None:
    """Run a task without work: the server does not say how many workers there are, so one has to show itself.

    Raises:
        RefusedError: none does for a minute.
    """
    answered = threading.Event()

    def ask() -> None:
        session.range(1, numPartitions=1).collect()
        answered.set()

    watch = WorkerWatch(master, lambda: int(answered.is_set()), say, _MEMORY)
    for asked in run_waves(iter([ask]), watch.look, partial(cancel, session)):
        asked.result()


def cancel(session: SparkSession) -> None:
    """End what this session's tasks do. Of a server that is gone nothing needs to be cancelled."""
    with contextlib.suppress(Exception):
        session.interruptAll()
