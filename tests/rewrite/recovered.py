"""Results of a real broker's recovery of a partition folder, and krepair's results for the same logs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from krepair.formats import txn_index
from krepair.rewrite.indexes.transactions import replayed
from krepair.scan.segment_files import rebuild_offset_and_time
from tests.lab.judge import Judge

SUFFIXES = (".index", ".timeindex", ".txnindex")
DEFAULT_INTERVAL_BYTES = 4096


def settings_of(log_dir: Path, topic: str) -> dict[str, str]:
    """The topic's settings as the fixture's manifest has them."""
    manifest = log_dir / "lab-manifest.json"
    topics = json.loads(manifest.read_text()).get("topics", {}) if manifest.exists() else {}
    return {key: str(value) for key, value in topics.get(topic, {}).get("config", {}).items()}


def companions(folder: Path) -> dict[str, bytes]:
    """Index files of a folder; an empty file is the same as none."""
    return {
        path.name: content
        for path in sorted(folder.iterdir())
        if path.suffix in SUFFIXES and (content := path.read_bytes())
    }


def by_broker(judge: Judge, folder: Path, work: Path, settings: Mapping[str, str]) -> dict[str, bytes]:
    """Recovery from point 0 of a copy that has only the logs: every index is made anew, each log cut to what is valid.

    Returns:
        Contents of the indexes, sizes of the logs, by file name.
    """
    copy = work / judge.version / folder.name
    copy.mkdir(parents=True)
    for path in folder.iterdir():
        if path.suffix == ".log":
            shutil.copy2(path, copy / path.name)
    judge.recover(copy, settings)
    return companions(copy) | {path.name: b"%d" % path.stat().st_size for path in copy.glob("*.log")}


def by_krepair(folder: Path, settings: Mapping[str, str], *, empty_markers: bool) -> dict[str, bytes]:
    """The same files by krepair, from the logs alone; of each log how much of it is valid."""
    interval = int(settings.get("index.interval.bytes", DEFAULT_INTERVAL_BYTES))
    logs = sorted(folder.glob("*.log"))
    made: dict[str, bytes] = {}
    for log in logs:
        found = rebuild_offset_and_time(str(log), log.stat().st_size, int(log.stem), interval)
        assert (found.damage_text == "") == (found.valid_bytes == log.stat().st_size)
        made |= {f"{log.stem}.index": found.index, f"{log.stem}.timeindex": found.time_index}
        made[log.name] = b"%d" % found.valid_bytes
    for segment in replayed(str(folder), [(int(log.stem), int(made[log.name])) for log in logs]):
        entries = [one for one in segment.entries if empty_markers or one.first_offset < one.last_offset]
        made[f"{segment.base_offset:020d}.txnindex"] = txn_index.encode(entries)
    return {name: content for name, content in sorted(made.items()) if content}
