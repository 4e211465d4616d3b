"""A replica that missed a tombstone is fetched anew on real clusters; one that is needed is not touched."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.errors import ExitCode, RefusedError
from krepair.formats.checkpoint import OffsetEntry, decode_offsets, encode_offsets
from krepair.ops.apply import apply
from krepair.ops.facts import facts
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Engine, Options
from krepair.plan.model import RefetchProof
from tests.lab import beside
from tests.lab.broker import Topic
from tests.lab.three import CONTROLLER, Three
from tests.lab.waiting import wait_for
from tests.ops.scene import tree

pytestmark = [pytest.mark.broker, pytest.mark.slow]

VERSIONS = ("2.2.1", "3.9.2", "4.3.1") if os.environ.get("KREPAIR_EVERY_BROKER") == "1" else ("4.3.1",)
TOPIC = "t"
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "3000",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "0",
}


def holds(cluster: Three, node: int, data: bytes) -> bool:
    return any(data in content for content in beside.read(cluster.log_dir(node) / f"{TOPIC}-0").values())


MISLEADING = ("cleaner-offset-checkpoint", "log-start-offset-checkpoint", "recovery-point-offset-checkpoint")


def mislead(root: Path) -> None:
    """The stopped broker's offsets speak of the log that it had; the deleted key's value is after the log start."""
    logs = sorted(root.glob(f"{TOPIC}-0/*.log"))
    assert len(logs) > 1
    middle = int(logs[-1].name.partition(".")[0])
    for name in MISLEADING:
        offset = 1 if name.startswith("log-start") else middle
        there = (root / name).stat()
        found = decode_offsets((root / name).read_bytes())
        others = [one for one in found.entries if (one.topic, one.partition) != (TOPIC, 0)]
        (root / name).write_bytes(encode_offsets((*others, OffsetEntry(TOPIC, 0, offset))))
        os.utime(root / name, ns=(there.st_atime_ns, there.st_mtime_ns))


def first_segment(cluster: Three, node: int) -> int:
    """The base offset of its first segment."""
    return int(beside.listed(cluster.log_dir(node) / f"{TOPIC}-0")[0].partition(".")[0])


def diverge(cluster: Three) -> None:
    """Broker 3 was away while a key was deleted, and the others have cleaned the tombstone away."""
    cluster.create({TOPIC: Topic(1, CONFIG)})
    cluster.write(TOPIC, [(b"a-key", b"a-value"), (b"the-key", b"the-value")])
    cluster.stop(3)
    cluster.write(TOPIC, [(b"the-key", None)])

    def cleaned() -> bool:
        cluster.fill(TOPIC, 8)
        return not any(holds(cluster, node, b"the-key") for node in (1, 2))

    wait_for(cleaned, step_s=0.5)
    cluster.start(3)
    cluster.wait_in_sync(TOPIC, of=(1, 2, 3))
    assert holds(cluster, 3, b"the-value")


class Proofs:
    """What an operator takes of a cluster: the state, and the time."""

    def __init__(self, cluster: Three, root: Path) -> None:
        self.cluster = cluster
        self.root = root
        self.count = 0

    def take(self) -> dict[str, object]:
        self.count += 1
        self._after_the_stop()
        path = self.root / f"proof-{self.count}"
        if self.cluster.kraft:
            beside.copied(self.cluster.metadata_dir(CONTROLLER), path)
            return {"cluster": str(path)}
        path.write_text(self.cluster.describe())
        return {"cluster": str(path), "cluster_as_of": time.time_ns() // 1_000_000}

    def _after_the_stop(self) -> None:
        """The controller writes something every half second: until its last batch is of now."""
        if not self.cluster.kraft:
            time.sleep(1.5)
            return
        folder = self.cluster.metadata_dir(CONTROLLER) / "__cluster_metadata-0"
        for _ in range(2):
            size = sum(map(len, beside.read(folder).values()))
            wait_for(lambda size=size: sum(map(len, beside.read(folder).values())) > size)

    def facts(self, *nodes: int) -> tuple[str, ...]:
        """Written on the hosts of brokers that go on running."""
        for node in nodes:
            options = Options(engine=Engine.INLINE, now_ms=time.time_ns() // 1_000_000)
            facts([str(self.cluster.log_dir(node))], str(self.root / f"b{node}.facts"), options)
        return tuple(f"{node}={self.root / f'b{node}.facts'}" for node in nodes)

    def options(
        self, proof: Mapping[str, object], *, others: tuple[int, ...] = (1, 2), topic: str = TOPIC
    ) -> Options:
        configs = [str(self.cluster.work / f"node-{node}.properties") for node in (1, 2, 3)]
        if self.cluster.version.startswith("2.2"):
            none = self.root / "reassignments"
            none.write_text("Node does not exist: /admin/reassign_partitions\n")
            configs.append(str(none))
        return Options(
            fixes=("refetch",),
            partitions=((topic, 0),),
            engine=Engine.INLINE,
            replicas=tuple(f"{node}={self.cluster.log_dir(node)}" for node in others),
            cluster_configs=tuple(configs),
            broker_version=self.cluster.version,
            **proof,  # type: ignore[arg-type]
        )


def refused(root: Path, options: Options) -> str:
    there = tree(root)
    with pytest.raises(RefusedError) as caught:
        make_plan(str(root), options)
    assert tree(root) == there
    return caught.value.message


@pytest.mark.parametrize("version", VERSIONS)
def test_a_replica_that_missed_a_tombstone_serves_what_the_others_serve_once_it_is_fetched_anew(
    version: str, tmp_path: Path
) -> None:
    with Three(version, tmp_path / "cluster") as cluster:
        diverge(cluster)
        proofs = Proofs(cluster, tmp_path)
        in_sync = proofs.take()
        cluster.stop(3)
        cluster.wait_out_of_sync(TOPIC, 3)
        root = cluster.log_dir(3)
        mislead(root)

        told = refused(root, proofs.options(in_sync))
        assert "is in the ISR" in told
        assert "not later than this broker's last write" in told

        options = proofs.options(proofs.take())
        plan = make_plan(str(root), options)
        proof = plan.partitions[0].proof
        assert isinstance(proof, RefetchProof)
        assert "tombstone-missed on 3" in proof.verdict
        by_facts = make_plan(str(root), replace(options, replicas=proofs.facts(1, 2))).partitions[0].proof
        assert isinstance(by_facts, RefetchProof)
        assert (by_facts.right, by_facts.wrong) == (proof.right, True)
        assert "tombstone-missed on 3" in by_facts.verdict
        before = tree(root, private=False)
        assert apply(plan, options).exit_code is ExitCode.DONE
        assert undo(plan, options).exit_code is ExitCode.DONE
        assert {**tree(root, private=False), ".lock": None} == {**before, ".lock": None}

        options = proofs.options(proofs.take())
        plan = make_plan(str(root), options)
        assert apply(plan, options).exit_code is ExitCode.DONE
        assert verify_plan(plan, options).exit_code is ExitCode.DONE
        assert not any(f"\n{TOPIC} 0 " in (root / name).read_text() for name in MISLEADING)

        cluster.stop(2)
        cluster.wait_out_of_sync(TOPIC, 2)
        second = proofs.options(proofs.take(), others=(1, 3))
        assert "one replica at a time" in refused(cluster.log_dir(2), second)

        cluster.start(2, 3)
        cluster.wait_in_sync(TOPIC, of=(1, 2, 3))
        right = cluster.serves(TOPIC)
        cluster.lead(3, [TOPIC])
        assert cluster.serves(TOPIC).table == right.table
        assert not holds(cluster, 3, b"the-value")
        assert first_segment(cluster, 3) == first_segment(cluster, 1) == 0  # not where the line was

        if cluster.kraft:  # now broker 3 is alone in the ISR
            cluster.stop(3)
            wait_for(lambda: "has no leader" in refused(root, proofs.options(proofs.take())), step_s=1.0)
            told = refused(root, proofs.options(proofs.take()))
            assert (
                "is in the ISR (3)" in told or "is in the ELR (3)" in told
            )  # with an ELR the ISR becomes empty
        else:
            cluster.stop(3)
        assert undo(plan, options).exit_code is ExitCode.STALE_PLAN
        assert purge(plan, options).exit_code is ExitCode.DONE


def test_a_replica_in_the_elr_is_not_emptied(tmp_path: Path) -> None:
    with Three("4.3.1", tmp_path / "cluster") as cluster:
        cluster.create({"e": Topic(1, {"min.insync.replicas": "2"})})
        cluster.write("e", [(b"k", b"v")])
        cluster.stop(3, 2)
        cluster.wait_out_of_sync("e", 2)
        proofs = Proofs(cluster, tmp_path)
        told = refused(cluster.log_dir(2), proofs.options(proofs.take(), topic="e"))
        assert "is in the ELR (2)" in told
        assert "is in the ISR" not in told
