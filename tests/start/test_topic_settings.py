"""Settings of topics that a version refuses (KR806), by what the metadata log or a file of settings says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from krepair.formats import cluster_metadata as metadata
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import NOW_MS
from tests.fixture_dirs import unpack
from tests.logdir.metadata_records import value
from tests.start.metadata_log import appended
from tests.start.states import foretold


def config(key: str, text: str | None, topic: str = "one", kind: int = metadata.TOPIC_RESOURCE) -> bytes:
    return value(metadata.CONFIG, {"resource_type": kind, "resource_name": topic, "name": key, "value": text})


@pytest.mark.parametrize(
    ("records", "refused_by", "newest"),
    [
        ([config("segment.bytes", "20000")], "4.1.0 4.4.0", "4.0"),
        ([config("segment.bytes", "1048575")], "4.1.0 4.4.0", "4.0"),
        ([config("segment.bytes", "1048576")], "", "4.4"),
        ([config("internal.segment.bytes", "1000")], "", "4.4"),
        ([config("segment.bytes", "1000"), config("segment.bytes", None)], "", "4.4"),
        ([config("segment.bytes", "1000"), config("segment.bytes", "2000000")], "", "4.4"),
        ([config("segment.bytes", "1000", topic="deleted")], "", "4.4"),
        ([config("segment.bytes", "1000", topic="0", kind=metadata.BROKER_RESOURCE)], "", "4.4"),
        ([config("segment.index.bytes", "3")], "3.9.2 4.0.0 4.1.0 4.4.0", "4.4"),
        ([config("message.format.version", "2.1")], "", "4.4"),
        ([config("message.format.version", "4.1-IV0")], "3.9.2", "4.4"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_setting_that_the_version_refuses_ends_its_start(
    tmp_path: Path, records: list[bytes], refused_by: str, newest: str
) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    appended(log_dir, *records)
    refusing = []
    for version in ("3.9.2", "4.0.0", "4.1.0", "4.4.0"):
        report = check(
            [str(log_dir)], Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)
        )
        found = [one for one in report.log_dirs[0].findings if one.rule == "KR806"]
        assert set(foretold(report).values()) == {"refuse" if found else "start"}
        assert all(
            "does not start" in one.evidence and "kafka-configs.sh" in str(one.command) for one in found
        )
        refusing += [version] * bool(found)
    assert " ".join(refusing) == refused_by
    assert report.newest_version == (newest if "3.9.2 4" not in refused_by else "")


def test_settings_that_were_typed_are_asked_too(tmp_path: Path) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    settings = tmp_path / "topics.json"
    settings.write_text(json.dumps({"one": {"segment.bytes": 5000}}))
    options = Options(
        engine=EngineName.INLINE, now_ms=NOW_MS, broker_version="4.4.0", topic_config=str(settings)
    )
    report = check([str(log_dir)], options)
    assert [one.rule for one in report.log_dirs[0].findings if one.rule == "KR806"] == ["KR806"]
