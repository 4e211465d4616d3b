"""The proof that a replica may be emptied: what the cluster, this directory and ``compare`` say."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from krepair.durable.real_disk import RealDisk
from krepair.errors import KrepairError, RefusedError, StalePlanError, UsageError
from krepair.formats import meta_properties, partition_metadata
from krepair.formats.broker_version import version_of
from krepair.formats.damage import Damage
from krepair.formats.filenames import ROOT_SUFFIX
from krepair.formats.partition_metadata import topic_id_text
from krepair.journal.actions.aside import has_segments_out
from krepair.journal.record import Journal
from krepair.logdir.cluster import DESCRIBE, Assignment, ClusterView, read_cluster_file
from krepair.logdir.reading import read_whole
from krepair.logdir.unclean import ClusterConfig, Said, unclean_of
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.ops.judged import Judgement, judge
from krepair.ops.own_dirs import OtherDirs, last_write_ms, other_dirs, reread
from krepair.ops.sides import Side, parse_sides
from krepair.options import Options
from krepair.plan.model import Plan
from krepair.rules.refetch import RefetchProof, why_not, why_too_old

CHECKPOINTS_EVERY_MS: Final = 60_000
"""A running broker writes its checkpoints at least that often (``log.flush.offset.checkpoint.interval.ms``)."""
_ELR_SINCE: Final = (4, 0, 0)
_KRAFT_ONLY: Final = 1
_NOTHING: Final = Judgement()

Name = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Known:
    """All that is known beside a partition itself.

    Attributes:
        view: this log directory.
        broker_id: whose it is.
        cluster: what the cluster says.
        as_of_ms: time of that.
        stopped_ms: when this broker last wrote, in any of its log directories.
        kraft: whether it is one without ZooKeeper.
        configs: files of ``--cluster-config``.
        broker_version: of this broker, as typed; may be empty.
        aside: partition -> brokers among those given that have it set aside.
        judgements: partition -> what ``compare`` says.
        others: this broker's other log directories.
        seen: broker -> when what is at hand of it was last written, or its facts were taken.
    """

    view: LogDir
    broker_id: int
    cluster: ClusterView
    as_of_ms: int
    stopped_ms: int
    kraft: bool
    configs: tuple[ClusterConfig, ...]
    broker_version: str
    aside: Mapping[Name, tuple[int, ...]] = field(default_factory=dict)
    judgements: Mapping[Name, Judgement] = field(default_factory=dict)
    others: OtherDirs = field(default_factory=OtherDirs)
    seen: Mapping[int, Seen] = field(default_factory=dict)


def prove(view: LogDir, options: Options, partitions: Sequence[Partition]) -> dict[str, RefetchProof]:
    """What is known of each partition whose replica shall be emptied; whether it may be is not yet said.

    Returns:
        Partition folder -> its proof; those that the cluster does not list are missing.

    Raises:
        UsageError: an option is missing or cannot be read.
        RefusedError: a file is no proof.
    """
    cluster = _cluster_of(options)
    typed = {side.broker_id: side for side in parse_sides(options.replicas)}
    own = typed.pop(_broker_id(view), None)
    sides = tuple(typed.values())
    names = [(partition.topic, partition.number) for partition in partitions]
    broker_id, as_of_ms = _broker_id(view), _time_of(cluster, options)
    aside = _aside(sides, names)
    judgements = judge(view, broker_id, sides, names, options, _policies(cluster))
    others = other_dirs(view, own, options.config, options.cluster_configs, cluster)
    known = Known(
        view=view,
        broker_id=broker_id,
        cluster=cluster,
        as_of_ms=as_of_ms,
        stopped_ms=_stopped_ms(view, others),
        kraft=is_kraft(view),
        configs=tuple(map(ClusterConfig, options.cluster_configs)),
        broker_version=options.broker_version,
        aside=aside,
        judgements=judgements,
        others=others,
        seen={side.broker_id: _seen(side) for side in sides},
    )
    found = ((partition, _proof(known, partition)) for partition in partitions)
    return {partition.folder: proof for partition, proof in found if proof is not None}


def check_again(plan: Plan, options: Options, view: LogDir) -> None:
    """Hold a fresh state of the cluster against the proofs of a plan, right before it is applied.

    Raises:
        RefusedError: no state of the cluster was given, it is too old, or it no longer proves that the replicas may be
            emptied.
        StalePlanError: a partition of the plan is no longer here, or no longer in the state of the cluster.
        UsageError: an option is missing, or the file of an option cannot be used.
        UnreadableError: the state of the cluster could not be read.
    """
    proven = [(one.folder, one.proof) for one in plan.partitions if isinstance(one.proof, RefetchProof)]
    if not proven:
        return
    again = _again(plan)
    if not options.cluster:
        raise RefusedError(
            f"plan {plan.plan_id} sets whole replicas aside: apply needs the state of the cluster again, at most "
            "10 minutes old",
            next_command=again,
        )
    cluster = _cluster_of(options)
    broker_id, as_of_ms = _broker_id(view), _time_of(cluster, options)
    others = reread(view, sorted({path for _, before in proven for path in before.other_dirs}))
    known = Known(
        view=view,
        broker_id=broker_id,
        cluster=cluster,
        as_of_ms=as_of_ms,
        stopped_ms=_stopped_ms(view, others),
        kraft=is_kraft(view),
        configs=tuple(map(ClusterConfig, options.cluster_configs)),
        broker_version=plan.policy.broker_version,
        others=others,
    )
    now_ms = time.time_ns() // 1_000_000
    partitions = {partition.folder: partition for partition in view.partitions}
    for folder, before in proven:
        partition = partitions.get(folder)
        fresh = None if partition is None else _proof(known, partition)
        if fresh is None:
            raise StalePlanError(f"{folder}: is not here, or not in {cluster.path}, any more")
        fresh = _with_what_was_known(fresh, before)
        reasons = [*why_not(fresh, now_ms), *filter(None, [why_too_old(fresh, now_ms)])]
        if reasons:
            raise RefusedError(f"{folder}: nothing was changed: {'; '.join(reasons)}", next_command=again)


def _again(plan: Plan) -> str:
    """The command with a fresh state; before 2.4 only ``--cluster-config`` says whether a reassignment is under way."""
    configs = UNSET if plan.asked is UNSET else plan.asked.cluster_configs
    more = " --cluster-config FILE" if configs is not UNSET else ""
    return f"krepair apply PLAN --cluster FILE [--cluster-as-of TIME]{more}"


def _with_what_was_known(fresh: RefetchProof, before: RefetchProof) -> RefetchProof:
    """The verdicts and the settings are those of the plan; a setting that is on now counts."""
    unclean, where = (
        (fresh.unclean, fresh.unclean_from)
        if fresh.unclean != "unknown"
        else (before.unclean, before.unclean_from)
    )
    return replace(
        fresh,
        unclean=unclean,
        unclean_from=where,
        aside=before.aside,
        right=before.right,
        wrong=before.wrong,
        verdict=before.verdict,
        too_old=before.too_old,
        unseen=before.unseen,
    )


def _policies(cluster: ClusterView) -> dict[str, str]:
    """What the cluster says of ``cleanup.policy``; Kafka's default is not said."""
    key = "cleanup.policy"
    return {topic: values[key] for topic, values in cluster.topic_configs.items() if key in values}


def _cluster_of(options: Options) -> ClusterView:
    if not options.cluster:
        raise UsageError("--fix refetch needs --cluster FILE", next_command=DESCRIBE)
    return read_cluster_file(options.cluster)


def _time_of(cluster: ClusterView, options: Options) -> int:
    """The metadata log has its own time; of ``--describe`` a person says it."""
    if cluster.as_of_ms is not None:
        return cluster.as_of_ms
    if options.cluster_as_of < 0:
        raise UsageError(
            f"{cluster.path}: --describe prints no time: type --cluster-as-of TIME, when kafka-topics.sh "
            "--bootstrap-server was run. The time of the file does not count: a copy makes it new",
            next_command=DESCRIBE,
        )
    return options.cluster_as_of


def _broker_id(view: LogDir) -> int:
    if not view.broker_id.isdecimal():
        raise RefusedError(
            f"{view.path}/meta.properties: does not say whose log directory this is (broker.id)"
        )
    return int(view.broker_id)


def _stopped_ms(view: LogDir, others: OtherDirs) -> int:
    return max(last_write_ms(view), others.last_write_ms)


def _proof(known: Known, partition: Partition) -> RefetchProof | None:
    name = (partition.topic, partition.number)
    one = known.cluster.partitions.get(name)
    if one is None:
        return None
    said: Said = unclean_of(partition.topic, known.cluster, known.configs)
    judgement = known.judgements.get(name, _NOTHING)
    return RefetchProof(
        broker_id=known.broker_id,
        source=known.cluster.source,
        source_is_certain=known.cluster.source_is_certain,
        digest=known.cluster.digest,
        as_of_ms=known.as_of_ms,
        stopped_ms=known.stopped_ms,
        topic_id=one.topic_id,
        own_topic_id=_topic_id(partition),
        replicas=one.replicas,
        isr=one.isr,
        elr=one.elr,
        kraft=known.kraft,
        may_have_elr=_may_have_elr(known),
        leader=one.leader,
        moving=_is_moving(known, name) if one.moving is None else one.moving,
        unclean=said.unclean,
        unclean_from=said.where,
        own_log=_is_own(known),
        outdated=_outdated(known),
        aside=known.aside.get(name, ()),
        right=judgement.right,
        verdict=judgement.verdict,
        wrong=judgement.wrong,
        other_dirs=known.others.paths,
        dirs_unknown=known.others.unknown,
        elsewhere=known.others.elsewhere.get(name, ""),
        too_old=tuple(
            broker for broker, seen in sorted(known.seen.items()) if seen.at_ms <= known.stopped_ms
        ),
        unseen=_unseen(known, one),
    )


class Seen(NamedTuple):
    """What is at hand of another broker.

    Attributes:
        at_ms: when its facts were taken; of directories, until when a running broker may have written nothing more.
        by_journals: whether krepair's journals in its partition folders can be read.
    """

    at_ms: int
    by_journals: bool


def _seen(side: Side) -> Seen:
    if not side.facts:
        last = max(last_write_ms(read_log_dir(path)) for path in side.log_dirs)
        return Seen(last + CHECKPOINTS_EVERY_MS, by_journals=True)
    from krepair.pipeline.replicas.facts import opened_facts

    with opened_facts(side.facts) as reader:
        return Seen(reader.header.made_ms, by_journals=False)


def _unseen(known: Known, one: Assignment) -> tuple[int, ...]:
    """Assigned brokers that may have set their replica aside: their journals are not at hand, and no ISR names them."""
    looked_at = {broker for broker, seen in known.seen.items() if seen.by_journals}
    return tuple(sorted({*one.replicas} - {*one.isr} - looked_at - {known.broker_id}))


def _is_moving(known: Known, name: Name) -> bool | None:
    """Of a cluster whose tools do not print it: what ZooKeeper says, where a file holds that; else None."""
    moving = (file.moving for file in known.configs)
    found = [name in some for some in moving if some is not None]
    return any(found) if found else None


def _topic_id(partition: Partition) -> str:
    file = partition.partition_metadata
    if file is None:
        return ""
    try:
        found = partition_metadata.decode(read_whole(file.path, partition_metadata.MAX_BYTES + 1))
    except OSError:
        return ""
    return "" if isinstance(found, Damage) else topic_id_text(found.topic_id)


def _may_have_elr(known: Known) -> bool:
    """Brokers with ZooKeeper, and brokers before 4.0, have none."""
    version = version_of(known.broker_version)
    if version is not None and version < _ELR_SINCE:
        return False
    return known.kraft


def is_kraft(view: LogDir) -> bool:
    """Whether ``meta.properties`` is that of a broker without ZooKeeper; True where it cannot be read."""
    if view.meta_properties is None:
        return True
    try:
        found = meta_properties.decode(read_whole(view.meta_properties.path, meta_properties.MAX_BYTES + 1))
    except OSError:
        return True
    return isinstance(found, Damage) or found.version >= _KRAFT_ONLY


def _is_own(known: Known) -> bool:
    """Whether a metadata log is in this log directory, or that of a node with this broker's id."""
    cluster = known.cluster
    if cluster.source != "metadata-log":
        return False
    inside = Path(cluster.path).is_relative_to(known.view.path)
    return inside or cluster.node_id == known.broker_id


def _outdated(known: Known) -> str:
    cluster = known.cluster
    if cluster.source != "metadata-log" or cluster.node_id in {-1, known.broker_id}:
        return ""
    if cluster.node_id == cluster.active_controller or cluster.active_controller < 0:
        return ""
    return f"{cluster.path} is the copy of node {cluster.node_id}; the active controller is {cluster.active_controller}"


def _aside(sides: Iterable[Side], names: Iterable[Name]) -> dict[Name, tuple[int, ...]]:
    """Which of the other brokers have a partition set aside by krepair; their journals tell."""
    wanted = frozenset(names)
    found: dict[Name, tuple[int, ...]] = {}
    for side in sides:
        for path in side.log_dirs:
            for partition in read_log_dir(path).partitions:
                name = (partition.topic, partition.number)
                if name in wanted and _is_aside(partition):
                    found[name] = (*found.get(name, ()), side.broker_id)
    return found


def _is_aside(partition: Partition) -> bool:
    """Whether a journal tells of a segment that was taken out; one that cannot be read might."""
    for private in partition.private:
        if private.name.endswith(ROOT_SUFFIX):
            continue
        try:
            journal = Journal(RealDisk(), private.path, private.plan_id, partition.folder)
        except (KrepairError, OSError):
            return True
        if has_segments_out(journal):
            return True
    return False
