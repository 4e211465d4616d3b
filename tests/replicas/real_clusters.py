"""The real clusters of ``fixtures/replicas``, unpacked."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import zstandard

from krepair.fixes.replicas import parse_brokers
from krepair.ops.compare import CompareReport, compare
from krepair.options import EngineName, Options
from tests.fixture_dirs import FIXTURES

NAMES = sorted(path.name.removesuffix(".tar.zst") for path in (FIXTURES / "replicas").glob("open-*.tar.zst"))
BROKERS = (1, 2, 3)


def unpack_cluster(name: str, target: Path) -> dict[str, Any]:
    """Unpack ``b1``, ``b2`` and ``b3`` into a folder, mtimes kept; the manifest."""
    target.mkdir(parents=True, exist_ok=True)
    with (
        open(FIXTURES / "replicas" / f"{name}.tar.zst", "rb") as packed,
        zstandard.ZstdDecompressor().stream_reader(packed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(target)
    manifest: dict[str, Any] = json.loads((target / "manifest.json").read_text())
    return manifest


def sides_of(target: Path) -> list[str]:
    """The sides as they are typed."""
    return [f"{broker}={target}/b{broker}" for broker in BROKERS if (target / f"b{broker}").is_dir()]


def compared(target: Path, engine: EngineName = EngineName.INLINE, **options: Any) -> CompareReport:
    """What ``compare`` says of them."""
    return compare(parse_brokers(sides_of(target)), Options(engine=engine, **options))
