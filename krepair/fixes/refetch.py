"""A whole replica is set aside, so that its broker fetches the partition anew from the leader.

``partition.metadata`` stays: without it a KRaft broker takes the folder for a stray one, and renames it together with
what is kept in it. The lines of the root's checkpoints stay as well: with an empty log a broker does not use them.

Source: ``LogManager.isStrayKraftReplica``, ``LogCleanerManager`` (3.9.0); seen on 2.2.1, 3.9.2 and 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from krepair.errors import RefusedError, UsageError
from krepair.fixes.fix import Fix, Proposal, Purpose
from krepair.fixes.gates import why_untouched
from krepair.fixes.ground import Ground
from krepair.fixes.second_readings import Applied, Job, gone_job
from krepair.fixes.staging import Staging, Work
from krepair.fixes.survey import Sight, Survey
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT
from krepair.logdir.values import FileRef, LogDir, Partition
from krepair.options import Options
from krepair.plan.model import Change, KeepOriginal, ReplaceFile, SetAside
from krepair.plan.view import time_text
from krepair.rules.refetch import REFETCHED, RefetchProof, why_not

PROVEN: Sight[RefetchProof] = Sight("proof that the replica may be emptied")
_COMMAND: Final = (
    "krepair plan LOGDIR --fix refetch --partition TOPIC-N --replicas ID=LOGDIR --cluster FILE --cluster-config FILE "
    "--out PLAN"
)
_LIVE: Final = (
    "what can be done while the brokers run: write the key again (or its tombstone) through the leader; "
    "kafka-transactions.sh --abort for a transaction that never ends; move the replica with "
    "kafka-reassign-partitions.sh"
)


class Refetch(Fix):
    """A wrong replica is set aside as a whole; its broker fetches the partition anew."""

    name = "refetch"
    mends = frozenset({REFETCHED})

    def check_options(self, options: Options) -> None:
        """It goes alone, and the partitions are named.

        Raises:
            UsageError: another fix is asked for too, or something is missing.
        """
        if not self.is_asked(options.fixes):
            return
        missing = [
            option
            for option, given in (
                ("--partition TOPIC-N", options.partitions),
                ("--replicas ID=LOGDIR", options.replicas),
                ("--cluster FILE", options.cluster),
            )
            if not given
        ]
        if missing:
            raise UsageError(f"--fix refetch needs {', '.join(missing)}", next_command=_COMMAND)
        if len(options.fixes) > 1:
            raise UsageError(
                "--fix refetch goes alone: what is fetched anew needs no other fix", next_command=_COMMAND
            )
        if options.keep != "inplace":
            raise UsageError(
                "--fix refetch keeps the originals in place: leave --keep out", next_command=_COMMAND
            )

    def best_way(self, surveys: Sequence[Survey]) -> str:
        """Nothing that ``check`` could advise: it sees one replica."""
        del surveys
        return ""

    def look(self, ground: Ground, surveys: Sequence[Survey], purpose: Purpose) -> None:
        """Hold the proof of each partition against the rules.

        Raises:
            RefusedError: one of them must not be emptied; all reasons are named.
        """
        if purpose == "check":
            return
        partitions = [survey.partition for survey in surveys]
        proofs = ground.prove(ground.view, ground.options, partitions)
        for survey in surveys:
            proof = proofs.get(survey.partition.folder)
            reasons = [*_being_moved(ground.view, survey), *_reasons(survey, proof, ground.options.now_ms)]
            if reasons or proof is None:
                raise RefusedError(
                    f"{survey.partition.folder}: must not be fetched anew: {'; '.join(reasons)}. {_LIVE}",
                    next_command=_COMMAND,
                )
            survey.put(PROVEN, proof)

    def propose(self, ground: Ground, survey: Survey) -> Proposal:
        """All files but ``partition.metadata`` go, the newest segment first."""
        del ground
        proof = survey.seen(PROVEN)
        if proof is None:
            return Proposal()
        return Proposal(
            changes=tuple(_changes(survey.partition)),
            notes=tuple(_notes(proof)),
            fields={"proof": proof},
        )

    def owns(self, change: Change) -> bool:
        """What it proposed."""
        if not isinstance(change, SetAside | ReplaceFile) or change.rule != REFETCHED:
            return False
        return isinstance(change, SetAside) or change.method == "remove"

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """A removal needs no bytes, only the folder that keeps the originals."""
        del work
        for staging in stagings:
            with staging.taking_problems():
                staging.folder.make_private_folders()

    def second_readings(self, applied: Applied, change: Change) -> Iterator[Job]:
        """The files are gone, and kept as they were."""
        assert isinstance(change, SetAside | ReplaceFile)
        names = change.names if isinstance(change, SetAside) else (change.name,)
        yield gone_job(applied, names)


REFETCH = Refetch()


def _being_moved(view: LogDir, survey: Survey) -> Iterator[str]:
    name = (survey.partition.topic, survey.partition.number)
    for marked in view.marked:
        if marked.role == "future" and (marked.topic, marked.number) == name:
            yield f"{marked.folder}: the broker moves it to another log directory and reads it here"


def _reasons(survey: Survey, proof: RefetchProof | None, now_ms: int) -> list[str]:
    untouched = why_untouched(survey.partition, survey.settings)
    reasons = [untouched] if untouched else []
    if survey.partition.private:
        ids = ", ".join(sorted({private.plan_id for private in survey.partition.private}))
        reasons.append(f"originals of plan {ids} are kept in it: undo or purge that plan first")
    if not survey.partition.segments:
        reasons.append("it holds no log")
    if survey.partition.leader_epoch_checkpoint is None:
        reasons.append(
            "it has no leader-epoch-checkpoint, by which undo would see that the broker wrote since"
        )
    if proof is None:
        return [*reasons, "the cluster does not list it in the file that --cluster names"]
    return [*reasons, *why_not(proof, now_ms)]


def _notes(proof: RefetchProof) -> Iterator[str]:
    """What the reviewer has to know of the proof."""
    isr = ", ".join(map(str, proof.isr))
    yield f"set aside as a whole, to be fetched anew: broker {proof.leader} leads, in sync are {isr}"
    yield f"proof: {proof.source} as of {time_text(proof.as_of_ms)}, digest {proof.digest}; {proof.unclean_from}"
    if not proof.source_is_certain:
        yield (
            "this text does not tell who answered: whoever typed --cluster-as-of vouches that it is of "
            "kafka-topics.sh --bootstrap-server, not of --zookeeper"
        )
    yield f"compare: {proof.verdict}"


def _changes(partition: Partition) -> Iterator[Change]:
    """The newest segment first, so that no state has a gap; the epochs last: undo sees by them who wrote since."""
    snapshots = {snapshot.offset: snapshot.file for snapshot in partition.snapshots}
    taken: set[str] = set()
    for segment in reversed(partition.segments):
        files = [*segment.files()]
        if segment.base_offset in snapshots:
            files.append(snapshots[segment.base_offset])
        taken.update(file.name for file in files)
        yield SetAside(
            change_id=f"{partition.folder}/{segment.base_offset:020d}",
            base_offset=segment.base_offset,
            names=tuple(file.name for file in files),
            bytes=sum(file.size for file in files),
            records=-1,
            rule=REFETCHED,
            consent="",
            reason="the whole replica is fetched anew from the leader",
            undo=KeepOriginal(),
        )
    rest = [file for file in partition.files() if file.name not in taken and _goes(file)]
    for file in sorted(rest, key=lambda file: (file.name == LEADER_EPOCH_CHECKPOINT, file.name)):
        yield ReplaceFile(
            change_id=f"{partition.folder}/{file.name}",
            name=file.name,
            method="remove",
            rule=REFETCHED,
            size_before=file.size,
            size_after=-1,
            digest_after="",
            reason="the whole replica is fetched anew from the leader",
            undo=KeepOriginal(),
        )


def _goes(file: FileRef) -> bool:
    """What a broker would read of the old log; other names stay, it deletes or ignores them."""
    return file.name == LEADER_EPOCH_CHECKPOINT or file.name.endswith(
        (".snapshot", ".index", ".timeindex", ".txnindex")
    )
