"""Valid plans to break: every kind of reason, a merge, a removed snapshot, a skipped partition."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from krepair.durable.disk import Disk
from krepair.options import Options
from krepair.plan import planfile
from krepair.plan.build import build_plan
from krepair.plan.model import (
    Commit,
    CompleteSwap,
    Evidence,
    FileFingerprint,
    HorizonChoice,
    KeepOriginal,
    Others,
    PartitionPlan,
    Plan,
    Policy,
    ReasonTally,
    ReplaceFile,
    RewriteSegments,
    Setting,
    SourceSegment,
    Span,
)

FOLDER = "__consumer_offsets-3"
DIGEST = "0123456789abcdef0123456789abcdef"
LAST_MTIME_NS = 1_700_000_200_000_000_000


def tally(reason: str, batches: int, size: int) -> ReasonTally:
    return ReasonTally(reason=reason, batches=batches, bytes=size)


def fingerprint(name: str, size: int, mtime_ns: int = 1_700_000_000_000_000_000) -> FileFingerprint:
    disk = -(-size // 4096) * 4096
    return FileFingerprint(name=name, size=size, mtime_ns=mtime_ns, digest=DIGEST, disk=disk)


def source(base_offset: int, **fields: object) -> SourceSegment:
    """A segment of 10 batches: one with records, one kept marker, eight that go."""
    values: dict[str, object] = {
        "base_offset": base_offset,
        "log_bytes": 1000,
        "batches": 10,
        "kept_bytes": 378,
        "kept_batches": 2,
        "kept_records": 4,
        "kept_markers": 1,
        "reasons": (tally("K01", 1, 300), tally("K02", 1, 78), tally("D01", 4, 310), tally("D03", 4, 312)),
        "drop_unstamped": True,
        "carried_open": (),
        "keep_positions": (),
        "protected": (),
        "last_position": -1,
        "decisions": "00ff00ff00ff00ff",
        "aborted_kept": (0,),
        "keeps_all": False,
    }
    return SourceSegment(**(values | fields))  # type: ignore[arg-type]


def last_source() -> SourceSegment:
    """A segment that keeps an emptied batch for a producer, a marker for its epoch, and empties its last
    batch."""
    return source(
        100,
        kept_bytes=61 + 78 + 61,
        kept_batches=3,
        kept_records=0,
        reasons=(tally("K05", 1, 78), tally("K07", 1, 61), tally("E01", 1, 78), tally("D03", 7, 783)),
        keep_positions=(61,),
        protected=((9, 2),),
        last_position=922,
        aborted_kept=(),
    )


def rewritten(*sources: SourceSegment, folder: str = FOLDER, **fields: Any) -> RewriteSegments:
    """Segments made anew as one; its figures are those of its sources, the last of which has 100 offsets."""
    base = sources[0].base_offset
    values: dict[str, Any] = {
        "change_id": f"{folder}/{base:020d}",
        "base_offset": base,
        "sources": sources,
        "log_bytes": sum(one.kept_bytes for one in sources),
        "index_bytes_at_most": 58,
        "batches": sum(one.kept_batches for one in sources),
        "mtime_ns": LAST_MTIME_NS,
        "last_offset": sources[-1].base_offset + 99,
        "removes_snapshots": (),
        "undo": KeepOriginal(),
    }
    return RewriteSegments(**(values | fields))


def replaced_file(name: str, /, *, folder: str = FOLDER, **fields: Any) -> ReplaceFile:
    """A file made anew, of the size that it had."""
    values: dict[str, Any] = {
        "change_id": f"{folder}/{name}",
        "name": name,
        "method": "regenerate",
        "rule": "KR201",
        "size_before": 8,
        "size_after": 8,
        "digest_after": DIGEST,
        "reason": "a reason",
        "undo": KeepOriginal(),
    }
    return ReplaceFile(**(values | fields))


def removed_file(name: str, /, *, folder: str = FOLDER, **fields: Any) -> ReplaceFile:
    """A file that was left behind and goes."""
    removed = {"method": "remove", "rule": "KR601", "size_before": 7, "size_after": -1, "digest_after": ""}
    return replaced_file(name, folder=folder, **(removed | fields))


def completed_swap(base_offset: int, /, *, folder: str = FOLDER, **fields: Any) -> CompleteSwap:
    """A swap that takes the place of one segment, and has no index."""
    values: dict[str, Any] = {
        "change_id": f"{folder}/{base_offset:020d}.log.swap",
        "base_offset": base_offset,
        "rule": "KR601",
        "log_bytes": 500,
        "last_offset": base_offset + 50,
        "batches": 5,
        "replaces": (base_offset,),
        "goes": (),
        "copied": (),
        "makes": (),
        "reason": "pending",
        "undo": KeepOriginal(),
    }
    return CompleteSwap(**(values | fields))


def partition(**fields: object) -> PartitionPlan:
    change = rewritten(source(0), last_source(), removes_snapshots=(f"{100:020d}.snapshot",))
    files = [
        fingerprint(f"{0:020d}.index", 8),
        fingerprint(f"{0:020d}.log", 1000),
        fingerprint(f"{0:020d}.timeindex", 12),
        fingerprint(f"{0:020d}.txnindex", 34),
        fingerprint(f"{100:020d}.index", 8),
        fingerprint(f"{100:020d}.log", 1000, LAST_MTIME_NS),
        fingerprint(f"{100:020d}.snapshot", 40),
        fingerprint(f"{100:020d}.timeindex", 12),
        fingerprint(f"{200:020d}.log", 500),
        fingerprint(f"{200:020d}.snapshot", 40),
    ]
    values: dict[str, object] = {
        "topic": "__consumer_offsets",
        "partition": 3,
        "folder": FOLDER,
        "status": "change",
        "log_start_offset": 0,
        "log_end_offset": 260,
        "high_watermark": 260,
        "span": Span(start_offset=0, end_offset=200, limit="active segment", limit_text="active segment 200"),
        "horizon_ms": 1_699_000_000_000,
        "horizons": (
            HorizonChoice(
                name="newest",
                horizon_ms=1_699_000_000_000,
                log_bytes_after=578,
                markers_dropped=11,
                chosen=True,
            ),
            HorizonChoice(
                name="next-pass", horizon_ms=0, log_bytes_after=1436, markers_dropped=0, chosen=False
            ),
        ),
        "files": tuple(files),
        "changes": (change,),
        "log_bytes_before": 2500,
        "notes": ("one producer is active",),
        "evidence": Evidence(kind="only-replica", why="test"),
    }
    return PartitionPlan(**(values | fields))  # type: ignore[arg-type]


def numbered(number: int, topic: str = "__consumer_offsets", **fields: object) -> PartitionPlan:
    """One of several partitions, equal but for its number."""
    folder = f"{topic}-{number}"
    changes = tuple(replace(one, change_id=f"{folder}/{0:020d}") for one in partition().changes)
    values = {"topic": topic, "partition": number, "folder": folder, "changes": changes}
    return partition(**(values | fields))


def left_alone(**fields: object) -> PartitionPlan:
    values: dict[str, object] = {
        "topic": "__consumer_offsets",
        "partition": 7,
        "folder": "__consumer_offsets-7",
        "status": "left alone",
        "code": "damage",
        "why": "00000000000000000000.log at 512: CRC 1, expected 2",
        "next_command": "krepair check /data --partition __consumer_offsets-7",
        "log_bytes_before": 4096,
        "uncleanable_bytes": 4096,
    }
    return PartitionPlan(**(values | fields))  # type: ignore[arg-type]


def nothing(**fields: object) -> PartitionPlan:
    values: dict[str, object] = {
        "topic": "__consumer_offsets",
        "partition": 1,
        "folder": "__consumer_offsets-1",
        "status": "nothing",
        "log_bytes_before": 10,
    }
    return PartitionPlan(**(values | fields))  # type: ignore[arg-type]


def laid_out(document: dict[str, Any]) -> bytes:
    """The file of a plan's JSON: a line for each field, and for each partition."""

    def text(value: Any) -> str:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    def field(name: str, value: Any) -> str:
        if name in ("partitions", "unchanged") and value:
            return f'"{name}": [\n' + ",\n".join(map(text, value)) + "\n]"
        return f'"{name}": {text(value)}'

    rows = (field(name, value) for name, value in sorted(document.items()))
    return ("{\n" + ",\n".join(rows) + "\n}\n").encode()


def policy(**fields: object) -> Policy:
    settings = (
        Setting(key="cleanup.policy", value="compact", source="default"),
        Setting(key="delete.retention.ms", value="86400000", source="default"),
        Setting(
            key="segment.bytes", value="104857600", source="server.properties: offsets.topic.segment.bytes"
        ),
    )
    values: dict[str, object] = {
        "rules": "2.2.1+KAFKA-8351+KAFKA-13727+KAFKA-14055+KAFKA-17076",
        "fixes": ("markers",),
        "now_ms": 1_700_086_400_000,
        "horizon": "newest",
        "merge": True,
        "keep": "inplace",
        "broker_version": "2.2.1",
        "assume_high_watermark": "",
        "settings": {"__consumer_offsets": settings},
        "others": Others(only_replica=("*",)),
    }
    return Policy(**(values | fields))  # type: ignore[arg-type]


def check_begins(found: list[str], words: list[str]) -> None:
    """As many objections as there are beginnings, each with its own one."""
    assert len(found) == len(words), found
    for text, part in zip(found, words, strict=True):
        assert text.startswith(part), found


FACTS: Any = SimpleNamespace(
    host="broker-1", path="/data/kafka", cluster_id="abc", broker_id="1", directory_id=""
)
COMMIT = Commit(order="P1", fence=True, why="one order for every version")


def good_plan(*partitions: PartitionPlan, **fields: object) -> Plan:
    made = policy(**fields)
    return build_plan(
        FACTS, made, partitions or (left_alone(), partition(), nothing()), COMMIT, asked=words_of(made)
    )


def words_of(made: Policy) -> tuple[str, ...]:
    """The options with which a plan of this policy would be made."""
    others = made.others
    options = Options(
        **{
            name: getattr(made, name)
            for name in ("fixes", "merge", "keep", "broker_version", "accepted_losses")
        },
        assume_high_watermark=made.assume_high_watermark,
        delete_horizon=made.horizon,
        replicas=others.replicas,
        cluster=others.cluster,
        only_replica=others.only_replica,
        as_broker=others.as_broker,
    )
    return options.words("plan", "reading")


def write_plan(path: str, plan: Plan, disk: Disk) -> None:
    """Write a plan file, as ``plan`` does."""
    planfile.write_plan(path, plan, disk)
