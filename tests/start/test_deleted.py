"""Folders that the metadata do not know: a broker of KRaft before 3.7 deletes them (seen on 3.3.2 and 3.6.2)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from krepair.formats import cluster_metadata as metadata
from tests.fixture_dirs import unpack
from tests.logdir.metadata_records import batch, value
from tests.start.nodes import Quorum, settings, written
from tests.start.states import LOG, METADATA, ONE, OTHER_ID, checked, foretold

ALONE = Quorum("alone", (1, 2, 3, 4))


def unknown_to_its_metadata(log_dir: Path) -> None:
    """A metadata log of 3.3 that knows no topic."""
    (log_dir / "bootstrap.checkpoint").unlink(missing_ok=True)
    for file in (log_dir / METADATA).glob("0*"):
        file.unlink()
    level = value(metadata.FEATURE_LEVEL, {"name": "metadata.version", "feature_level": 7})
    (log_dir / LOG).write_bytes(batch(0, [level]))


@pytest.mark.parametrize(
    ("version", "expected"),
    [("3.3.2", "delete"), ("3.6.2", "delete"), ("3.7.2", "stray"), ("3.9.2", "stray")],
)
@pytest.mark.parametrize("state", ["another topic id", "no metadata log"])
def test_before_3_7_it_is_deleted(tmp_path: Path, version: str, expected: str, state: str) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    unknown_to_its_metadata(log_dir)
    if state == "no metadata log":
        shutil.rmtree(log_dir / METADATA)
    else:
        (log_dir / ONE).write_text(f"version: 0\ntopic_id: {OTHER_ID}")
    config = written(tmp_path / "server.properties", settings(ALONE, 0, log_dir, {}))
    report = checked([log_dir], config, version)
    assert foretold(report)["one-0"] == expected
    told = [one.evidence for one in report.log_dirs[0].findings if one.rule in {"KR408", "KR610"}]
    assert any("deletes" in one for one in told) is (expected == "delete")


def test_where_a_log_has_no_topic_id_nothing_is_deleted(tmp_path: Path) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    unknown_to_its_metadata(log_dir)
    (log_dir / ONE).unlink()
    config = written(tmp_path / "server.properties", settings(ALONE, 0, log_dir, {}))
    assert set(foretold(checked([log_dir], config, "3.6.2")).values()) == {"start"}


@pytest.mark.parametrize(("version", "expected"), [("3.3.2", "refuse"), ("3.6.2", "delete")])
def test_kraft_3_3_does_not_start_on_files_of_zookeeper(tmp_path: Path, version: str, expected: str) -> None:
    log_dir = unpack("kraft-3.9.2", tmp_path)
    shutil.rmtree(log_dir / METADATA)
    (log_dir / "bootstrap.checkpoint").unlink()
    meta = log_dir / "meta.properties"
    meta.write_text(meta.read_text().replace("version=1", "version=0").replace("node.id", "broker.id"))
    config = written(tmp_path / "server.properties", settings(ALONE, 0, log_dir, {}))
    assert set(foretold(checked([log_dir], config, version)).values()) == {expected}
