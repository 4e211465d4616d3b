"""Log directories for key compaction through the verbs: histories on disk, options, and what a reader sees."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from krepair.commit.reports import ApplyReport
from krepair.errors import ExitCode
from krepair.formats.filenames import TRANSACTIONS_TOPIC
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import VerifyReport, verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Change, KeyCompaction, PartitionPlan, Plan, RewriteSegments
from krepair.plan.planfile import seal
from krepair.plan.review import review
from krepair.rules.model import MarkerPolicy
from tests.builders import NOW_MS, LogDir, Record, data
from tools.torture.scenes import look, visible

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
        "engine": EngineName.INLINE,
        "now_ms": NOW_MS,
        "fixes": ("compact",),
        "delete_horizon": "4000000000000",
        "assume_high_watermark": "log-end",
    }
    common["settings"] = more.pop("settings_given", ())
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


def dead_cleaner(root: Path, *, segments: int = 14) -> Path:
    """A log directory whose cleaner never ran: two partitions with the same keys in every segment, one kept by time."""
    directory = LogDir(root)
    for topic in ("__consumer_offsets", "changelog", "by-time"):
        partition = directory.partition(topic)
        for number in range(segments):
            records = [Record(b"key-%d" % key, b"%d" % number * 50) for key in range(9)]
            records.append(Record(b"gone", None if number % 2 else b"here"))
            time = NOW_MS - (segments - number) * 86_400_000
            partition.segment(data(10 * number, records, timestamp=time), mtime_ms=time)
        partition.segment(data(10 * segments, 2))
    return directory.write()


LONGEST_EXPIRY_MS = 2**31 - 1


def through_verbs(folder: Path, policy: MarkerPolicy, **more: object) -> dict[int, bytes]:
    """Compact a copy of a partition folder by plan, apply, verify, plan again and undo.

    Args:
        folder: with the partition ``t-0``; it is not touched.
        policy: what the options are to say.
        more: options besides.

    Returns:
        Base offset -> bytes of every ``.log`` after apply. A partition that is left alone has those of before.

    Raises:
        AssertionError: a verb does not end as it has to.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="krepair-keys-", dir=memory) as root:
        return _through_verbs(Path(root), folder, policy, more)


def _through_verbs(
    root: Path, folder: Path, policy: MarkerPolicy, more: Mapping[str, object]
) -> dict[int, bytes]:
    log_dir = root / "logs"
    topic = TRANSACTIONS_TOPIC if policy.ends_in_records else "t"
    shutil.copytree(folder, log_dir / f"{topic}-0")
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=krepair-test-cluster00\n")
    mark = min(policy.high_watermark, 2**62)
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{topic} 0 {mark}\n")
    given = options(
        root,
        topic,
        settings={
            "segment.bytes": str(policy.segment_bytes),
            "segment.index.bytes": str(policy.segment_index_bytes),
            "index.interval.bytes": str(policy.index_interval_bytes),
            "delete.retention.ms": str(policy.delete_retention_ms),
            "min.compaction.lag.ms": str(policy.min_compaction_lag_ms),
        },
        now_ms=policy.now_ms,
        delete_horizon=policy.horizon,
        merge=policy.merge,
        assume_high_watermark="",
        settings_given=tuple(
            (name, str(min(max(policy.producer_expiry_ms, 1), LONGEST_EXPIRY_MS)))
            for name in ("producer.id.expiration.ms", "transactional.id.expiration.ms")
        ),
        **more,
    )
    verbs = Verbs(log_dir, given)
    before = look(log_dir)
    plan = verbs.plan()
    assert review(plan) == []
    if plan.partitions[0].changes:
        report = verbs.apply(plan)
        assert report.exit_code is ExitCode.DONE, report.results
        assert verbs.verify(plan).problems == ()
        again = verbs.plan().partitions[0]
        assert (again.status, again.changes) == ("nothing", ())
    made = logs(log_dir / f"{topic}-0")
    if plan.partitions[0].changes:
        assert verbs.undo(plan).exit_code is ExitCode.DONE
        assert visible(look(log_dir)) == visible(before)
    return made


def without_stays(plan: Plan) -> Plan:
    """The plan as one that does not say which records stay, so that apply looks for the keys itself."""
    return seal(
        replace(
            plan,
            partitions=tuple(
                replace(part, changes=tuple(map(_without_stays, part.changes))) for part in plan.partitions
            ),
        )
    )


def _without_stays(change: Change) -> Change:
    if not isinstance(change, RewriteSegments):
        return change
    sources = (
        source if source.by_key is None else replace(source, compacted=replace(source.by_key, stays=UNSET))
        for source in change.sources
    )
    return replace(change, sources=tuple(sources))


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
