"""Memory of the driver for a job of 100,000 items: a few waves, however many items there are."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from krepair.engine import spark
from krepair.engine.items import ScanItem
from krepair.engine.spark_worker import ItemDone
from krepair.formats.java_numbers import INT64_MAX
from krepair.scan.scan import scan
from tests.places import place_of

_ITEMS = 100_000
_BOUND = 128 << 20


@pytest.mark.slow
def test_100_000_items_need_less_than_128_mib_of_the_driver_beside_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(tmp_path / "t-0")
    items = [
        ScanItem(place=place, base_offset=offset, size=1, now_ms=0, high_watermark=INT64_MAX)
        for offset in range(_ITEMS)
    ]
    context = SimpleNamespace(defaultParallelism=2)
    session = SimpleNamespace(conf={"spark.speculation": "false"}, sparkContext=context, stop=lambda: None)
    monkeypatch.setattr(spark, "start_session", lambda master: session)
    largest, result = [0], bytearray(pickle.dumps(ItemDone(bytes(1000))))

    def wave(self: object, table: pa.Table) -> list[spark.Row]:
        largest[0] = max(largest[0], table.nbytes)
        bundles = [pickle.loads(row["bundle"]) for row in table.to_pylist()]
        return [(place, bytes(result)) for bundle in bundles for place, _ in bundle.items]

    monkeypatch.setattr(spark.SparkEngine, "_wave", wave)
    engine = spark.SparkEngine("local[2]", "test")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        done = sum(1 for _ in engine.map(scan, items))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert done == _ITEMS
    assert most - before < _BOUND, f"{(most - before) >> 20} MiB"
    assert 0 < largest[0] < 8 << 20
