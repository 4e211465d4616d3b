"""Log directories for key compaction through the verbs: histories on disk, options, and what a reader sees."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.reports import ApplyReport, VerifyReport
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Engine, Options
from krepair.plan.model import KeyCompaction, PartitionPlan, Plan, RewriteSegments
from tests.builders import NOW_MS

SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "100000", "index.interval.bytes": "200"}


def topic_config(root: Path, settings: Mapping[str, str] | None = None, *topics: str) -> Path:
    """A file with the configuration of topics; without a name of ``t``."""
    path = root / "topics.json"
    config = SETTINGS | dict(settings or {})
    path.write_text(json.dumps(dict.fromkeys(topics or ("t",), config)))
    return path


def options(root: Path, *topics: str, settings: Mapping[str, str] | None = None, **more: object) -> Options:
    """``krepair ... --fix compact``; the topics' own configuration is written beside the log directory."""
    common: dict[str, object] = {
        "topic_config": str(topic_config(root, settings, *topics)),
        "engine": Engine.INLINE,
        "now_ms": NOW_MS,
        "fixes": ("compact",),
        "delete_horizon": "4000000000000",
        "assume_high_watermark": "log-end",
    }
    return Options(**(common | more))  # type: ignore[arg-type]


class Verbs:
    """The verbs on one log directory, under the same options."""

    def __init__(self, log_dir: Path, given: Options) -> None:
        self.log_dir = log_dir
        self.given = given

    def plan(self) -> Plan:
        """``krepair plan``."""
        return make_plan(str(self.log_dir), self.given)

    def apply(self, plan: Plan) -> ApplyReport:
        """``krepair apply``."""
        return apply(plan, self.given)

    def verify(self, plan: Plan) -> VerifyReport:
        """``krepair verify --originals``."""
        return verify_plan(
            plan, Options(engine=self.given.engine, originals=True, scratch=self.given.scratch)
        )

    def undo(self, plan: Plan) -> ApplyReport:
        """``krepair undo``."""
        return undo(plan, self.given)

    def purge(self, plan: Plan) -> ApplyReport:
        """``krepair purge``."""
        return purge(plan, self.given)


def keys_of(part: PartitionPlan) -> KeyCompaction:
    """What a plan says of the keys of a partition."""
    assert isinstance(part.compaction, KeyCompaction), (part.status, part.code, part.why)
    return part.compaction


def groups_of(part: PartitionPlan) -> list[RewriteSegments]:
    """The groups of a partition that are written anew."""
    return [change for change in part.changes if isinstance(change, RewriteSegments)]


def logs(folder: Path) -> dict[int, bytes]:
    """Base offset -> bytes of every ``.log`` of a partition."""
    return {int(path.stem): path.read_bytes() for path in sorted(folder.glob("*.log"))}
