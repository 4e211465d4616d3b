"""A whole replica is set aside, so that its broker fetches the partition anew from the leader.

``partition.metadata`` stays: without it a KRaft broker takes the folder for a stray one, and renames it together with
what is kept in it. The partition's lines of the four offset checkpoints of the root go, before its logs: they speak of
a log that is not there any more, and a broker uses them.

- Log start: a broker begins the empty log there. What the leader has below it would never be fetched.
- Recovery point: stays in the file until the next checkpoint, up to a minute. After a power cut in that time the new
  log would be trusted up to the old offset.
- Cleaner: up to 2.3.0 an offset past the log end stays. From 2.3.1 on it is set back, but only if the cleaner looks
  before the log has grown past it. What is fetched below it would count as cleaned.
- High watermark: every version takes the log end where that is lower. It goes too, so that no line is left.

Source: ``Log.recoverLog``, ``LogManager.loadLog``, ``LogCleanerManager.cleanableOffsets`` (2.2.1);
``LogLoader.recoverLog``, ``LogCleanerManager.cleanableOffsets``, ``LogManager.isStrayKraftReplica`` (3.9.0, and 4.x).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from krepair.durable.attributes import read_attributes
from krepair.errors import KrepairError, RefusedError, StalePlanError, UsageError
from krepair.fixes.context import Context
from krepair.fixes.files import put_staged, removed
from krepair.fixes.fix import Fix, Proposal, Purpose
from krepair.fixes.second_readings import LINES, Applied, SecondReading, gone, seen_here
from krepair.fixes.staging import Staging, Work
from krepair.fixes.survey import Sight, Survey
from krepair.fixes.untouched import why_untouched
from krepair.formats.checkpoint import decode_offsets
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT, offset_name
from krepair.journal.actions.lines import LARGEST_BYTES, current_data
from krepair.logdir.reading import read_whole
from krepair.logdir.replica import FUTURE
from krepair.logdir.values import FileRef, LogDir, OffsetCheckpoint, Partition
from krepair.options import Options
from krepair.plan.model import Change, ChangeLines, KeepOriginal, ReplaceFile, SetAside
from krepair.plan.view import time_text
from krepair.rules.checkpoint_lines import ChangedLine, with_lines
from krepair.rules.refetch import REFETCHED, RefetchProof, why_not

PROVEN: Sight[RefetchProof] = Sight("proof that the replica may be emptied")
_WHOLE: Final = "the whole replica is fetched anew from the leader"
_NOT_AS_PLANNED: Final = "its lines are not those that the plan takes out"
_LIVE: Final = (
    "what can be done while the brokers run: write the key again (or its tombstone) through the leader; "
    "kafka-transactions.sh abort for a transaction that never ends; move the replica with "
    "kafka-reassign-partitions.sh"
)


def _command(*words: str) -> str:
    """What to type for a plan, with words that are to be said, or said anew; the others are filled in as typed."""
    return " ".join(("krepair plan LOGDIR --fix refetch", *words, "--out PLAN"))


def _to_say_anew(options: Options, proof: RefetchProof | None) -> Iterator[str]:
    """What a refused plan lacks: a later time, where one was typed, and the settings, where they are not known."""
    if options.cluster_as_of >= 0:
        yield "--cluster-as-of TIME"
    if proof is not None and proof.unclean == "unknown" and not options.cluster_configs:
        yield "--cluster-config FILE"


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
                ("--replicas ID=DIR", options.replicas),
                ("--cluster FILE", options.cluster),
            )
            if not given
        ]
        if missing:
            raise UsageError(f"--fix refetch needs {', '.join(missing)}", next_command=_command(*missing))
        if len(options.fixes) > 1:
            raise UsageError(
                "--fix refetch goes alone: what is fetched anew needs no other fix", next_command=_command()
            )
        if options.keep != "inplace":
            raise UsageError(
                "--fix refetch keeps the originals in place: leave --keep out",
                next_command=_command("--keep inplace"),
            )

    def best_way(self, surveys: Sequence[Survey]) -> str:
        """Nothing that ``check`` could advise: it sees one replica."""
        return ""

    def look(self, context: Context, surveys: Sequence[Survey], purpose: Purpose) -> None:
        """Hold the proof of each partition against the rules.

        Raises:
            RefusedError: one of them must not be emptied; all reasons are named.
        """
        if purpose == "check":
            return
        partitions = [survey.partition for survey in surveys]
        moved = _being_moved(context.view)
        damaged = list(_damaged_checkpoints(context.view))
        proofs = context.prove(context.view, context.options, partitions)
        for survey in surveys:
            proof = proofs.get(survey.partition.folder)
            reasons = [
                *moved.get((survey.partition.topic, survey.partition.number), ()),
                *damaged,
                *_reasons(survey, proof, context.options.now_ms),
            ]
            if reasons or proof is None:
                raise RefusedError(
                    f"{survey.partition.folder}: must not be fetched anew: {'; '.join(reasons)}. {_LIVE}",
                    next_command=_command(*_to_say_anew(context.options, proof)),
                )
            survey.put(PROVEN, proof)

    def propose(self, context: Context, survey: Survey) -> Proposal:
        """All files but ``partition.metadata`` go, the newest segment first."""
        proof = survey.seen(PROVEN)
        if proof is None:
            return Proposal()
        return Proposal(
            changes=tuple(_changes(survey.partition)),
            notes=tuple(_notes(proof)),
            fields={"proof": proof},
        )

    def propose_root(self, context: Context) -> Proposal:
        emptied = frozenset(
            (survey.partition.topic, survey.partition.number)
            for survey in context.surveys.values()
            if survey.seen(PROVEN) is not None
        )
        changes = [_without_lines(one, emptied) for one in _checkpoints(context.view)]
        return Proposal(root_changes=tuple(change for change in changes if change is not None))

    def owns(self, change: Change) -> bool:
        if not isinstance(change, SetAside | ReplaceFile | ChangeLines) or change.rule != REFETCHED:
            return False
        return not isinstance(change, ReplaceFile) or change.method == "remove"

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """A removal needs no bytes, only the folder that keeps the originals; a checkpoint loses lines.

        No log is touched where a line of the root is not as it was planned.
        """
        wrong = _wrong_root(work) if any(staging.partition is not None for staging in stagings) else None
        for staging in stagings:
            with staging.taking_problems():
                if staging.partition is not None and wrong is not None:
                    raise wrong
                staging.folder.make_private_folders()
                for change in staging.changes:
                    if isinstance(change, ChangeLines):
                        path = staging.folder.at(change.name)
                        like = read_attributes(path, work.disk.tree)
                        put_staged(work, staging, change.name, _made(staging, change), like)

    def second_readings(self, applied: Applied) -> Iterator[SecondReading]:
        """The files are gone, and kept as they were; checkpoints have lost the lines of the plan, and no other."""
        for change in applied.changes:
            if isinstance(change, ChangeLines):
                yield seen_here(change, LINES, _wrong_lines(applied.work, applied.staging, change))
            else:
                assert isinstance(change, SetAside | ReplaceFile)
                yield gone(applied, change, change.names if isinstance(change, SetAside) else (change.name,))


REFETCH = Refetch()


def _checkpoints(view: LogDir) -> tuple[OffsetCheckpoint, ...]:
    return (view.cleaner, view.log_start, view.recovery_point, view.high_watermark)


def _damaged_checkpoints(view: LogDir) -> Iterator[str]:
    """Those of which no line can be taken out."""
    for checkpoint in _checkpoints(view):
        if checkpoint.file is not None and checkpoint.lines.damage:
            yield (
                f"{checkpoint.file.name} is damaged, so that the line of this partition cannot be taken out: mend it "
                "first (krepair plan LOGDIR --fix checkpoints --out PLAN)"
            )


def _without_lines(checkpoint: OffsetCheckpoint, emptied: frozenset[tuple[str, int]]) -> ChangeLines | None:
    """The change that takes the lines of some partitions out, None if there is none."""
    file = checkpoint.file
    lines = tuple(
        ChangedLine(topic=entry.topic, partition=entry.partition, old=entry.offset, new=None)
        for entry in (() if file is None else checkpoint.lines.entries)
        if (entry.topic, entry.partition) in emptied
    )
    if file is None or not lines:
        return None
    return ChangeLines(
        change_id=f"./{file.name}",
        name=file.name,
        rule=REFETCHED,
        lines=lines,
        size_before=file.size,
        reason="the log of which it speaks is fetched anew",
        undo=KeepOriginal(),
    )


def _wrong_root(work: Work) -> KrepairError | OSError | None:
    """Why the logs must stay as they are, None if the lines of the root are right: the same for all partitions."""
    try:
        _check_lines(work)
    except (KrepairError, OSError) as error:
        return error
    return None


def _check_lines(work: Work) -> None:
    """Check that the lines of the root are as they were planned, or taken out already.

    Raises:
        StalePlanError: one is not.
        OSError: a checkpoint cannot be read.
    """
    for change in () if work.plan.root is None else work.plan.root.changes:
        if isinstance(change, ChangeLines) and change.rule == REFETCHED:
            path = f"{work.plan.log_dir}/{change.name}"
            data = read_whole(path, LARGEST_BYTES, work.disk.tree)
            if with_lines(data, change.lines) is None and _lines_there(data, change):
                raise StalePlanError(f"{path}: {_NOT_AS_PLANNED}")


def _made(staging: Staging, change: ChangeLines) -> bytes:
    """The bytes without the lines.

    Raises:
        StalePlanError: a line is not as it was planned.
    """
    made = with_lines(current_data(staging.folder, change), change.lines)
    if made is None:
        raise StalePlanError(f"{staging.folder.at(change.name)}: {_NOT_AS_PLANNED}")
    return made


def _lines_there(data: bytes, change: ChangeLines) -> bool:
    """Whether a partition of the change has a line; of a damaged file that is not known."""
    names = {(line.topic, line.partition) for line in change.lines}
    found = decode_offsets(data)
    return bool(found.damage) or any((one.topic, one.partition) in names for one in found.entries)


def _wrong_lines(work: Work, staging: Staging, change: ChangeLines) -> str:
    """What is wrong with a checkpoint that lost lines, or empty."""
    data = read_whole(staging.folder.at(change.name), LARGEST_BYTES, work.disk.tree)
    if _lines_there(data, change):
        return "a line of a replica that is set aside is in it"
    kept = staging.folder.at(staging.folder.names.keep(change.name))
    if not work.disk.tree.is_there(kept):
        return ""
    original = read_whole(kept, LARGEST_BYTES, work.disk.tree)
    gone = {(line.topic, str(line.partition)) for line in change.lines}
    stays = [line for line in _plain_lines(original) if line[:2] not in gone]
    return "" if _plain_lines(data) == stays else "other lines than those of the plan changed"


def _plain_lines(data: bytes) -> list[tuple[str, ...]]:
    """Topic, partition and offset of each line, read by none of the code that made the file; any words if it rotted."""
    rows = [line.split() for line in data.decode("utf-8", "replace").splitlines()[2:]]
    return [(*row[:1], *(word.lstrip("0") or "0" for word in row[1:])) for row in rows]


def _being_moved(view: LogDir) -> dict[tuple[str, int], list[str]]:
    """Why a partition that the broker moves away from here must not be emptied, by topic and number."""
    found: dict[tuple[str, int], list[str]] = {}
    for marked in view.marked:
        if marked.role == FUTURE:
            why = f"{marked.folder}: the broker moves it to another log directory and reads it here"
            found.setdefault((marked.topic, marked.number), []).append(why)
    return found


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
    if proof.isr == (proof.leader,):
        yield f"only broker {proof.leader} is in sync: until this replica is fetched, that is the only good copy"
    if proof.unseen:
        yield (
            f"not seen: whether the replica of broker {', '.join(map(str, proof.unseen))} is set aside too. It is not "
            "in the ISR, and its log directories were not given with --replicas. Make sure that it is not"
        )


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
            change_id=f"{partition.folder}/{offset_name(segment.base_offset)}",
            base_offset=segment.base_offset,
            names=tuple(file.name for file in files),
            bytes=sum(file.size for file in files),
            records=-1,
            rule=REFETCHED,
            consent="",
            reason=_WHOLE,
            undo=KeepOriginal(),
        )
    rest = [file for file in partition.files() if file.name not in taken and _goes(file)]
    for file in sorted(rest, key=lambda file: (file.name == LEADER_EPOCH_CHECKPOINT, file.name)):
        yield removed(partition.folder, file, REFETCHED, _WHOLE)


def _goes(file: FileRef) -> bool:
    """What a broker would read of the old log; other names stay, it deletes or ignores them."""
    return file.name == LEADER_EPOCH_CHECKPOINT or file.name.endswith(
        (".snapshot", ".index", ".timeindex", ".txnindex")
    )
