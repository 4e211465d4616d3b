"""A KRaft cluster of several brokers: one that is also the controller, and followers beside it.

with Broker("4.3.1", ...) as first, Follower(first, 1, ...) as second: ...
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.broker import Broker
from tests.lab.jvm import java
from tests.lab.ports import free_port


class Follower(Broker):
    """A broker, and no controller, of the cluster of another one.

    Args:
        controller: which is started already, and is not restarted.
        node_id: of this one.
        log_dir: see ``Broker``.
        props: see ``Broker``.
        work_dir: see ``Broker``.
        more: see ``Broker``.
    """

    def __init__(
        self,
        controller: Broker,
        node_id: int,
        log_dir: Path,
        props: Mapping[str, object] | None = None,
        *,
        work_dir: Path,
        **more: Any,
    ) -> None:
        super().__init__(controller.version, log_dir, props, work_dir=work_dir, port=free_port(), **more)
        self.controller = controller
        self.node_id = node_id

    def _settings(self) -> dict[str, object]:
        own = {
            "process.roles": "broker",
            "node.id": self.node_id,
            "controller.quorum.voters": f"0@127.0.0.1:{self.controller._controller_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
        }
        return super()._settings() | own

    def _prepare_kraft(self) -> None:
        metadata = self.work_dir / "metadata"
        if not (metadata / "meta.properties").exists():
            self._format(metadata)


def metadata_records(broker: Broker) -> list[dict[str, Any]]:
    """What the controller has written into the metadata log, in order: ``type`` and ``data`` of each record."""
    logs = sorted((broker.work_dir / "metadata" / "__cluster_metadata-0").glob("*.log"))
    words = ["--cluster-metadata-decoder", "--files", ",".join(map(str, logs))]
    argv = java(broker.version, "org.apache.kafka.tools.DumpLogSegments", *words)
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = (line.partition(" payload: ")[2] for line in said.splitlines())
    return [json.loads(payload) for payload in found if payload.startswith("{")]
