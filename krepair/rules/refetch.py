"""May a replica be emptied, so that its broker fetches the partition anew? Pure: the proof is plain values.

A replica that is alone in the ISR, or that may become leader, must never be emptied: it would come up empty as leader,
and every other replica would cut itself to nothing. So everything has to be known, and whatever is not known refuses.

Source: ``Partition.scala``, ``ReplicaFetcherThread.scala`` (2.2.1, 3.9.0), KIP-966 (ELR); run on three brokers of
3.9.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from krepair.logdir.values import ClusterSource, Unclean

REFETCHED: Final = "KR670"
"""The rule under which a whole replica is set aside."""

MAX_AGE_MS: Final = 600_000
"""How old the proof that ``apply`` is given may be."""
AHEAD_MS: Final = 60_000
"""How far the clock of the cluster may be ahead of the clock of this host."""


class RefetchProof(Struct, frozen=True, kw_only=True):
    """What the cluster says of one partition, and what ``compare`` says of its replicas.

    Attributes:
        broker_id: this broker.
        source: of the state of the cluster; see ``krepair.logdir.cluster``.
        source_is_certain: whether the text tells that a broker answered; else a person vouches for it.
        digest: of the file that holds it: 32 hex digits.
        as_of_ms: time of that state, epoch milliseconds.
        stopped_ms: this broker's last write to a checkpoint, segment or other file of its log directories.
        topic_id: as the cluster says; empty if it does not say.
        own_topic_id: of ``partition.metadata``; empty if there is none.
        replicas: assigned brokers.
        isr: in-sync replicas.
        elr: eligible leader replicas; None if the source does not say.
        kraft: whether this broker runs without ZooKeeper.
        may_have_elr: whether the cluster may have eligible leader replicas at all (4.0 and later, KRaft).
        leader: broker id, -1 none.
        moving: whether a reassignment is under way; None if the source does not say.
        unclean: whether unclean leader election is off.
        unclean_from: where that is said, or empty.
        own_log: whether the metadata log is this broker's own.
        outdated: why the copy of the metadata log is not of the active controller, or empty.
        aside: brokers among those given that have this partition set aside by krepair.
        right: brokers whose replica ``compare`` calls right.
        verdict: what ``compare`` says of this replica, in words.
        wrong: whether ``compare`` calls this replica wrong, or behind.
        other_dirs: paths of this broker's other log directories.
        dirs_unknown: why it is not known which these are, or empty.
        elsewhere: where this broker has the partition as well, or empty.
        too_old: brokers of which what was compared is not later than this broker's last write.
        unseen: assigned brokers of which it cannot be seen whether their replica is set aside too.
    """

    broker_id: int
    source: ClusterSource
    digest: str
    as_of_ms: int
    stopped_ms: int
    topic_id: str
    own_topic_id: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    kraft: bool
    may_have_elr: bool
    leader: int
    moving: bool | None
    unclean: Unclean
    unclean_from: str
    source_is_certain: bool = True
    own_log: bool = False
    outdated: str = ""
    aside: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    verdict: str = ""
    wrong: bool = False
    other_dirs: tuple[str, ...] = ()
    dirs_unknown: str = ""
    elsewhere: str = ""
    too_old: tuple[int, ...] = ()
    unseen: tuple[int, ...] = ()


def why_not(proof: RefetchProof, now_ms: int) -> tuple[str, ...]:
    """Every reason why the replica must not be emptied; empty if it may be.

    Args:
        proof: what is known.
        now_ms: the clock of this host.
    """
    return (
        *_of_the_source(proof, now_ms),
        *_of_the_partition(proof),
        *_of_the_leader(proof),
        *_of_the_replicas(proof),
    )


def why_too_old(proof: RefetchProof, now_ms: int) -> str:
    """Why a proof is too old for ``apply``, or empty."""
    age = now_ms - proof.as_of_ms
    if age <= MAX_AGE_MS:
        return ""
    return f"the proof is {age // 1000} s old; for apply it may be at most {MAX_AGE_MS // 1000} s old"


def _of_the_source(proof: RefetchProof, now_ms: int) -> Iterator[str]:
    if proof.own_log:
        yield (
            "this is the broker's own metadata log: it ends before its own fencing; copy that of the active controller"
        )
    if proof.outdated:
        yield proof.outdated
    if proof.source == "describe-zookeeper":
        yield (
            "this is the output of kafka-topics.sh --zookeeper, which answers also when no broker runs: ask a broker, "
            "with --bootstrap-server"
        )
    if proof.dirs_unknown:
        yield proof.dirs_unknown
    if proof.as_of_ms <= proof.stopped_ms:
        late = (proof.stopped_ms - proof.as_of_ms) // 1000
        yield f"the proof is not later than this broker's last write (by {late} s): take it after the broker stopped"
    if proof.as_of_ms > now_ms + AHEAD_MS:
        yield f"the proof is {(proof.as_of_ms - now_ms) // 1000} s in the future of this host's clock"


def _of_the_partition(proof: RefetchProof) -> Iterator[str]:
    me = proof.broker_id
    if proof.topic_id and proof.own_topic_id and proof.topic_id != proof.own_topic_id:
        yield f"the cluster's topic has the id {proof.topic_id}, this folder {proof.own_topic_id}: it is another topic"
    if proof.kraft and not proof.own_topic_id:
        yield (
            "partition.metadata is missing: a KRaft broker would take the emptied folder for a stray one, and rename it"
        )
    if proof.elsewhere:
        yield proof.elsewhere
    if me not in proof.replicas:
        yield f"broker {me} is not assigned to it ({_ids(proof.replicas)})"
    if me in proof.isr:
        yield f"broker {me} is in the ISR ({_ids(proof.isr)}): what it has, the others need"
    if proof.elr is None and proof.may_have_elr:
        yield "the proof does not say who is in the ELR, and this cluster may have one: use the tool of 4.x"
    if proof.elr and me in proof.elr:
        yield f"broker {me} is in the ELR ({_ids(proof.elr)}): it may become leader"
    if proof.moving is None:
        yield "the proof does not say whether a reassignment is under way"
    elif proof.moving:
        yield "a reassignment is under way: wait for its end, or cancel it"


def _of_the_leader(proof: RefetchProof) -> Iterator[str]:
    if proof.leader < 0:
        yield "it has no leader"
    elif proof.leader == proof.broker_id:
        yield f"broker {proof.leader} is its leader"
    elif proof.leader not in proof.isr:
        yield f"its leader {proof.leader} is not in the ISR ({_ids(proof.isr)})"
    if proof.unclean == "on":
        yield f"unclean leader election is on ({proof.unclean_from}): an emptied replica could become leader"
    elif proof.unclean == "unknown":
        yield "it is not known whether unclean leader election is off: give --cluster-config"


def _of_the_replicas(proof: RefetchProof) -> Iterator[str]:
    others = [broker for broker in proof.aside if broker != proof.broker_id]
    if others:
        yield f"broker {_ids(others)} has this partition set aside as well: one replica at a time"
    if not proof.wrong:
        yield f"compare does not call this replica wrong ({proof.verdict or 'it says nothing'})"
    if proof.leader in proof.too_old:
        yield (
            f"what was compared of the leader {proof.leader} is from before this broker's last write: take its facts, "
            "or the snapshot of its volume, after this broker stopped"
        )
    if proof.leader not in proof.right:
        said = f"it calls right: {_ids(proof.right)}" if proof.right else "it calls nobody right"
        yield f"compare does not call the leader's replica right ({said})"


def _ids(brokers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, brokers)) or "nobody"
