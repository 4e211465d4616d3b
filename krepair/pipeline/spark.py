"""Tasks on Spark: a small DataFrame of work items in, Arrow rows of results out; bytes of logs never travel.

Only DataFrame calls, so that Spark Connect works too. Speculation is off: a doubled task would only waste work, since
tasks stage privately and one process commits.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from krepair.errors import RefusedError
from krepair.pipeline.jobs import Task, run_encoded

ITEM_SCHEMA = "index long, task string, item binary"
RESULT_SCHEMA = "index long, result binary"
_RESULT_ARROW = pa.schema([("index", pa.int64()), ("result", pa.binary())])
_WAVE = 512


def map_items(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the items of Arrow batches; what ``mapInArrow`` calls in a worker."""
    for batch in batches:
        for row in batch.to_pylist():
            result = run_encoded(row["task"], row["item"])
            yield pa.RecordBatch.from_pylist(
                [{"index": row["index"], "result": result}], schema=_RESULT_ARROW
            )


def start_session(master: str) -> SparkSession:
    """One session: UTC, loopback on ``local``, no UI, no speculation, one row per Arrow batch."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_CONF_DIR", os.path.join(os.path.dirname(__file__), "spark_conf"))
    on_this_host = master.startswith(("local", "spark://127.", "spark://localhost"))
    if on_this_host:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.appName("krepair")
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.speculation", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.maxResultSize", "2g")
        .config("spark.sql.warehouse.dir", os.path.join(tempfile.gettempdir(), "krepair-warehouse"))
    )
    if on_this_host:
        builder = builder.config("spark.driver.host", "127.0.0.1").config(
            "spark.driver.bindAddress", "127.0.0.1"
        )
    return builder.getOrCreate()


class SparkEngine:
    """Runs items on a Spark session.

    Args:
        master: Spark master URL.
        why: why Spark was taken, for the report.
    """

    def __init__(self, master: str, why: str) -> None:
        self.session = start_session(master)
        self.why = f"{why}, master {master}"
        if self.session.conf.get("spark.speculation", "false") == "true":
            raise RefusedError("spark.speculation is on; krepair wants it off")

    def run(self, task: Task[Any, Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield results wave by wave, so that a long job shows that it goes on."""
        rows = [
            (index, task.name, bytearray(msgspec.msgpack.encode(item))) for index, item in enumerate(items)
        ]
        for first in range(0, len(rows), _WAVE):
            yield from self._run_wave(task, rows[first : first + _WAVE])

    def _run_wave(
        self, task: Task[Any, Any], rows: list[tuple[int, str, bytearray]]
    ) -> Iterator[tuple[int, Any]]:
        frame = self.session.createDataFrame(rows, ITEM_SCHEMA).repartition(len(rows))
        for row in frame.mapInArrow(map_items, RESULT_SCHEMA).select("index", "result").collect():
            yield int(row["index"]), msgspec.msgpack.decode(bytes(row["result"]), type=task.result)

    def close(self) -> None:
        """Stop the session."""
        self.session.stop()
