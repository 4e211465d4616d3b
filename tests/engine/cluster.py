"""A real standalone Spark cluster on loopback: a master and workers from the installed PySpark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pyspark

from tests.lab.ports import free_port

DEPLOY = "org.apache.spark.deploy"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of JVMs that live for seconds: a second compiler, and threads that collect, take more than the work."""

SUBMIT_ARGS = (
    f"--driver-memory 768m --driver-java-options '{QUICK_JVM}'"
    f" --conf 'spark.executor.extraJavaOptions={QUICK_JVM}' pyspark-shell"
)
"""``PYSPARK_SUBMIT_ARGS`` of the tests: two cores are shared with whatever else runs."""


def _within(host: str, command: str) -> list[str]:
    """Words that run a program as on a host of this name, after a command that changes only what it sees."""
    script = f'hostname {host} && {command or ":"} && exec "$@"'
    return ["unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]


def why_no_hosts() -> str:
    """Why no worker can have a host name and mounts of its own here, or empty."""
    tried = subprocess.run(
        ["unshare", "--uts", "--mount", "true"], capture_output=True, text=True, check=False, timeout=30
    )
    return tried.stderr.strip() if tried.returncode else ""


class Cluster:
    """A master and ``workers`` workers for the length of a ``with`` block; ``url`` is its address.

    ``hosts``: shell commands by host name. Each worker then has a host name and mounts of its own, and runs its command
    there before it starts (root, and a kernel with UTS and mount namespaces).
    """

    def __init__(self, work_dir: Path, workers: int = 2, hosts: dict[str, str] | None = None) -> None:
        self.work_dir = work_dir
        self.hosts = hosts or {}
        self.workers = len(self.hosts) or workers
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        try:
            self._start(
                "master.Master", "--host", "127.0.0.1", "--port", self.port, "--webui-port", free_port()
            )
            self._wait(r"I have been elected leader")
            for number in range(self.workers):
                options = ["--cores", 1, "--memory", "1g", "--host", "127.0.0.1", "--webui-port", free_port()]
                self._start(
                    "worker.Worker",
                    *options,
                    "--work-dir",
                    self.work_dir / f"work-{number}",
                    self.url,
                    within=_within(*list(self.hosts.items())[number]) if self.hosts else [],
                )
            self._wait(r"Registering worker", self.workers)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, main: str, *words: object, within: Sequence[str] = ()) -> None:
        home = os.path.dirname(pyspark.__file__)
        conf = self.work_dir / "conf"
        conf.mkdir(exist_ok=True)  # none: Spark's own logging, which tells when a daemon is ready
        env = os.environ | {
            "SPARK_CONF_DIR": str(conf),
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "PYSPARK_PYTHON": sys.executable,
        }
        argv = [*within, os.path.join(home, "bin", "spark-class"), f"{DEPLOY}.{main}", *map(str, words)]
        with self.log_path.open("ab") as log:
            # a session of its own, so that executors end with their worker
            self._processes.append(
                subprocess.Popen(
                    argv,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env=env,
                    start_new_session=True,
                )
            )

    @property
    def log_path(self) -> Path:
        """Where all of them log."""
        return self.work_dir / "cluster.log"

    def log(self) -> str:
        """What they logged."""
        return self.log_path.read_text(errors="replace")

    def _wait(self, pattern: str, times: int = 1, timeout_s: float = 240) -> None:
        deadline = time.monotonic() + timeout_s
        while len(re.findall(pattern, self.log())) < times:
            if time.monotonic() > deadline or any(each.poll() is not None for each in self._processes):
                raise RuntimeError(f"no Spark cluster in {timeout_s} s:\n{self.log()[-3000:]}")
            time.sleep(0.1)

    def worker_pids(self) -> list[int]:
        """Process ids of the workers."""
        return [process.pid for process in self._processes[1:]]

    def close(self) -> None:
        """End all of them."""
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()
