"""ZooKeeper beside brokers before 3.0, in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.lab.jvm import java

MAIN = Path(__file__).parent / "java" / "Zk.java"


class ZooKeeperError(RuntimeError):
    """It did not start, or did not take what was written."""


class ZooKeeper:
    """One for as long as it is not closed.

    Args:
        version: of the brokers.
        port: where it listens.
        work: gets its data (``zookeeper``) and what it logs (``zookeeper.log``).
    """

    def __init__(self, version: str, port: int, work: Path) -> None:
        home = work / "zookeeper"
        home.mkdir(exist_ok=True)
        self._log = work / "zookeeper.log"
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                java(version, str(MAIN), port, home, heap="128m"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def write(self, nodes: Mapping[str, object]) -> None:
        """Write JSON values, making parents as needed; wait until they are there, and so until it serves.

        Raises:
            ZooKeeperError: they are not.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for path, value in nodes.items():
            self._process.stdin.write(f"{path}\t{json.dumps(value, separators=(',', ':'))}\n")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != "READY":
            raise ZooKeeperError("ZooKeeper: " + self._log.read_text()[-2000:])

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
