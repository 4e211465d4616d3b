"""The architecture page's example of a new version works: check loads what it reads, and the verdict names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.cli.views import check as page
from krepair.formats import kafka_versions
from krepair.ops.check import check
from krepair.options import EngineName, Options
from krepair.start import readable, topic_settings
from tests.builders import NOW_MS
from tests.ops.coordinator_records import OFFSETS, keyed, log_dir

OF_KRAFT = "version=1\nnode.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the example into the table, as its steps say."""
    code = re.search(r"## How to add a version of Kafka.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code[1], str(PAGE), "exec"), names)
    for module in (kafka_versions, topic_settings):
        monkeypatch.setattr(module, "LINES", names["NEW_LINES"])
    for module in (kafka_versions, readable, page):
        monkeypatch.setattr(module, "RELEASES", names["NEW_RELEASES"])
    kafka_versions.lines_of.cache_clear()
    yield
    kafka_versions.lines_of.cache_clear()


@pytest.mark.parametrize(("version", "is_found"), [("4.4.0", True), ("4.5.0", False)])
@pytest.mark.usefixtures("example")
def test_only_the_new_version_loads_its_commits(tmp_path: Path, version: str, is_found: bool) -> None:
    root = log_dir(tmp_path / "logs", OFFSETS, [keyed(1, 5)])
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, broker_version=version)
    found = [one.evidence for one in check([str(root)], options).log_dirs[0].findings if one.rule == "KR807"]
    assert ["it reads up to 4" in evidence for evidence in found] == [True] * is_found


def newest(root: Path) -> str:
    log_dir(root, OFFSETS, [keyed(1, 5)])
    (root / "meta.properties").write_text(OF_KRAFT)
    return check([str(root)], Options(engine=EngineName.INLINE, now_ms=NOW_MS)).newest_version


@pytest.mark.usefixtures("example")
def test_the_verdict_names_it(tmp_path: Path) -> None:
    assert newest(tmp_path / "logs") == "4.5"


def test_without_it_no_version_loads_them(tmp_path: Path) -> None:
    assert newest(tmp_path / "logs") == ""
