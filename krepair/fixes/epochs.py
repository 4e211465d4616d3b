"""Fix ``epochs``: check the leader epoch checkpoints of a log directory, and plan their repair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from krepair.checks.catalogue import Finding, Severity, of_version
from krepair.derive.epochs import clears_history, epochs_of_log
from krepair.fixes.analysis import PartitionAnalysis, ResultKey
from krepair.fixes.context import Context
from krepair.fixes.files import RebuiltFile, rebuild_change
from krepair.fixes.fix import Fix, Proposal, Purpose, partitions_to_analyze, skipped_for_leftovers
from krepair.fixes.gate import analysis_apart, uncertain_offsets, waits_for_leftovers_alone, why_untouched
from krepair.fixes.logs import parts_after, read_logs
from krepair.fixes.staging import Staging, Work
from krepair.formats.broker_version import version_of
from krepair.formats.damage import Damage, UnknownVersion
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT, log_name
from krepair.formats.words import count_text
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import LogDir, Partition
from krepair.plan.model import ReplaceFile
from krepair.rules.epochs import (
    MOST_BYTES,
    EpochDecision,
    EpochFacts,
    EpochReason,
    MergedEpochs,
    Recorded,
    merge_epochs,
    read_recorded,
)
from krepair.rules.model import SegmentFacts

EPOCHS_RESULT: ResultKey[EpochFacts] = ResultKey("leader epochs")
_SHOWN_AT_MOST = 20
_FEW = 3


class Epochs(Fix):
    """Fix ``epochs``, which rebuilds ``leader-epoch-checkpoint`` from its valid entries and the epochs in the log."""

    name = "epochs"
    reads_logs = True
    after = ("tail",)

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Compare the checkpoints with the logs, scanning logs that were not read before."""
        looked = partitions_to_analyze(analyses, purpose)
        for analysis in looked:
            if waits_for_leftovers_alone(analysis.partition, analysis.settings):
                analysis.put(EPOCHS_RESULT, analyze_epochs_file(analysis.partition))
        touched = [
            analysis for analysis in looked if not why_untouched(analysis.partition, analysis.settings)
        ]
        read_logs(context, touched)
        for analysis in touched:
            facts = analyze_epochs(context, analysis)
            analysis.put(EPOCHS_RESULT, facts)
            if facts.digest:
                analysis.digests[LEADER_EPOCH_CHECKPOINT] = facts.digest

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return findings KR401, KR402 and KR411, and the checkpoint to replace."""
        apart = analysis_apart(analysis)
        waiting = None if apart is None else apart.result(EPOCHS_RESULT)
        if waiting is not None and waiting.merged.needed and not waiting.mends:
            return skipped_for_leftovers(analysis, "leader epochs")
        facts = waiting or analysis.result(EPOCHS_RESULT)
        return (
            Proposal() if facts is None else Proposal(_findings(analysis, facts), *_changes(analysis, facts))
        )

    def bytes_of(self, work: Work, staging: Staging, change: ReplaceFile) -> RebuiltFile:
        facts = analyze_epochs_file(
            staging.listed
        )  # a swap was pending when the plan was made, and may be completed now
        if facts.mends and digest_bytes(facts.merged.data) == change.digest_after:
            return RebuiltFile(facts.merged.data)
        analysis = work.analysis(staging, work.all_facts(staging))
        facts = analyze_epochs(work.context, analysis)
        if digest_bytes(facts.merged.data) != change.digest_after:  # a plan that 1.0.0 has begun must resume
            facts = analyze_epochs(work.context, analysis, doubts=False)
        return RebuiltFile(facts.merged.data, facts.left)


EPOCHS = Epochs()


def log_start_of(log_dir: LogDir, partition: Partition, segments: Sequence[SegmentFacts]) -> int:
    """Return the checkpoint's log start offset if the offset lies in the log, else the first segment's base offset."""
    if not segments:
        return 0
    first = segments[0].base_offset
    end = segments[-1].end_offset
    recorded = log_dir.log_start.offsets.get(partition.key, first)
    return recorded if first < recorded <= end else first


class EpochsFile(NamedTuple):
    """Leader epoch checkpoint of a partition.

    Attributes:
        recorded: entries and damage of the file.
        digest: digest of the file's bytes; empty if the file is missing or unreadable.
        wrong: reason why the file could not be read, or empty.
    """

    recorded: Recorded
    digest: str = ""
    wrong: str = ""


def read_epochs_file(partition: Partition) -> EpochsFile:
    """Read the checkpoint of a partition."""
    file = partition.leader_epoch_checkpoint
    if any(special.name == LEADER_EPOCH_CHECKPOINT for special in partition.specials):
        return EpochsFile(read_recorded(None), wrong=f"{LEADER_EPOCH_CHECKPOINT} is no regular file")
    if file is None:
        return EpochsFile(read_recorded(None))
    try:
        data = read_whole(file.path, MOST_BYTES + 1)
    except OSError as error:
        return EpochsFile(
            read_recorded(None), wrong=f"{LEADER_EPOCH_CHECKPOINT}: could not be read: {why(error)}"
        )
    recorded = read_recorded(data)
    if len(data) > MOST_BYTES:
        damage = Damage(0, file.size, f"at most {MOST_BYTES} bytes", "more")
        recorded = Recorded(exists=True, damage=(damage,), broker_reads=False)
    return EpochsFile(recorded, digest_bytes(data))


def analyze_epochs(context: Context, analysis: PartitionAnalysis, *, doubts: bool = True) -> EpochFacts:
    """Merge the file's entries with the epochs in the log after the changes proposed so far."""
    partition, segments = analysis.partition, analysis.segments_after
    summaries = [facts.summary for facts in segments]
    file = read_epochs_file(partition)
    reason = file.wrong or next(
        (damage.text for damage in file.recorded.damage if isinstance(damage, UnknownVersion)), ""
    )
    own = ""
    if not segments or len(segments) != len(parts_after(partition, analysis.changes)):
        own = "not all of its segments could be read"
    elif clears_history(summaries):
        own = "messages of v0 or v1 follow batches of v2, which makes a broker clear the history"
    log_start = log_start_of(context.view, partition, segments)
    log = epochs_of_log(
        summaries,
        log_start,
        compacted=analysis.settings.compacts,
        recorded=file.recorded.entries,
        doubts=doubts,
        unsound=uncertain_offsets(segments),
    )
    if own and file.recorded.stops_start:  # this file ends a start: build it from its own entries
        own, log = "", epochs_of_log((), log_start, compacted=True)._replace(end=None)
    merged = merge_epochs(file.recorded, log, version_of(context.options.broker_version))
    return EpochFacts(file.recorded, merged, file.digest, reason or own, file.wrong, log.doubted)


def analyze_epochs_file(partition: Partition) -> EpochFacts:
    """Return the facts that the file shows by itself, while a swap is pending.

    A file that stops a start is rebuilt from its own entries; any other file is repaired after the swap.
    """
    file = read_epochs_file(partition)
    merged = merge_epochs(file.recorded, epochs_of_log((), 0, compacted=True)._replace(end=None))
    unknown = any(isinstance(damage, UnknownVersion) for damage in file.recorded.damage)
    if file.recorded.stops_start and not (file.wrong or unknown):
        return EpochFacts(file.recorded, merged, file.digest)
    merged = MergedEpochs((), (), bool(file.recorded.damage))
    waiting = "a .swap in its folder has to become a segment first (--fix leftovers)"
    return EpochFacts(file.recorded, merged, file.digest, file.wrong or waiting, file.wrong)


def rule_of(facts: EpochFacts) -> str:
    """Return KR401 for a damaged, empty or missing file, KR402 for a file that contradicts the log."""
    return "KR402" if facts.recorded.intact else "KR401"


def _findings(analysis: PartitionAnalysis, facts: EpochFacts) -> Iterator[Finding]:
    recorded, merged = facts.recorded, facts.merged
    yield from _doubted_findings(analysis, facts)
    if facts.unread:
        if (
            analysis.partition.leader_epoch_checkpoint is not None
        ):  # otherwise no regular file has its name: KR606
            yield Finding(rule="KR308", partition=analysis.partition.folder, evidence=facts.unread)
        return
    if merged.needed and not recorded.intact:
        first = recorded.damage[0] if recorded.damage else None
        unknown = isinstance(first, UnknownVersion)
        texts = [_state_of(facts)] if unknown else [_state_of(facts), _summary(facts) + _left(facts)]
        damaged = Finding(
            rule="KR401",
            partition=analysis.partition.folder,
            file=LEADER_EPOCH_CHECKPOINT,
            position=first.position if first else -1,
            # Without the file, or with an empty one, a broker starts (seen on 3.9.2).
            severity=Severity.CONFUSING if recorded.broker_reads else None,
            evidence="; ".join(filter(None, texts)),
        )
        yield of_version(damaged, unknown=unknown)
    conflicts = [decision for decision in merged.decisions if decision.conflict]
    missing = [decision for decision in merged.decisions if recorded.intact and _added(decision)]
    # If the recorded entries do not change, nothing has to be done: compaction removed the batches that prove the
    # entries.
    if merged.needed and (conflicts or recorded.intact):
        trivial = [decision for decision in merged.decisions if decision.trivial]
        text = "; ".join(decision.text for decision in [*conflicts, *missing, *trivial][:_FEW]) or _summary(
            facts
        )
        yield Finding(
            rule="KR402",
            partition=analysis.partition.folder,
            file=LEADER_EPOCH_CHECKPOINT,
            # A broker corrects all other differences when it loads the file, and followers get the same answers.
            severity=None if conflicts or missing else Severity.INFORMATION,
            evidence=f"{count_text(len(conflicts), 'contradiction')}, {count_text(len(missing), 'epoch')} missing: "
            f"{text}{_left(facts)}",
        )


def _doubted_findings(analysis: PartitionAnalysis, facts: EpochFacts) -> Iterator[Finding]:
    if not facts.doubted:
        return
    first, others = facts.doubted[0], len(facts.doubted) - 1
    around = [
        f"{place} {epoch}"
        for place, epoch in (
            ("the batch before it", first.before),
            ("the batch after it", first.after),
            (f"{LEADER_EPOCH_CHECKPOINT} begins there", first.recorded),
        )
        if epoch >= 0
    ]
    more = f"; {count_text(others, 'more batch', 'more batches')} like it" if others else ""
    yield Finding(
        rule="KR411",
        partition=analysis.partition.folder,
        file=log_name(first.base_offset),
        position=first.position,
        evidence=f"the batch at offset {first.epoch_start.first_offset} has leader epoch {first.epoch_start.epoch}, "
        f"{', '.join(around)}; no epoch is derived from it{more}",
        first_offset=first.epoch_start.first_offset,
    )


def _left(facts: EpochFacts) -> str:
    return f"; left as it is: {facts.left}" if facts.left else ""


def _added(decision: EpochDecision) -> bool:
    return decision.reason in {EpochReason.LOG, EpochReason.LOG_LATE}


def _state_of(facts: EpochFacts) -> str:
    recorded = facts.recorded
    if not recorded.exists:
        return "the file is missing"
    if not recorded.damage:
        return "the file has no entries"
    first = recorded.damage[0]
    reads = "" if recorded.broker_reads else "; no broker starts with it"
    return f"{first.text}{reads}"


def _summary(facts: EpochFacts) -> str:
    """Return the sources of the new file, in one line."""
    merged = facts.merged
    if not merged.entries:
        return ""
    kept = sum(
        decision.reason in {EpochReason.RECORDED, EpochReason.UNPROVEN} for decision in merged.decisions
    )
    added = sum(_added(decision) for decision in merged.decisions)
    text = (
        f"{count_text(len(merged.entries), 'entry', 'entries')}: {kept} of those recorded, {added} that the "
        f"log shows"
    )
    late = merged.may_be_late
    if late:
        shown = ", ".join(map(str, late[:_FEW])) + (" ..." if len(late) > _FEW else "")
        text += f"; compaction may have taken the first batches of epochs {shown}: their starts may be late"
    return text


def _changes(
    analysis: PartitionAnalysis, facts: EpochFacts
) -> tuple[tuple[ReplaceFile, ...], tuple[str, ...]]:
    """Return the checkpoint to replace, if necessary, and notes for the reviewer on the checkpoint's entries."""
    notes = tuple(f"leader epochs: {text}" for text in _notes(facts))
    if not facts.mends:
        return (), (*notes, f"its leader epochs are not changed: {facts.left}") if facts.left else notes
    folder, file, data = (
        analysis.partition.folder,
        analysis.partition.leader_epoch_checkpoint,
        facts.merged.data,
    )
    state = "the log says otherwise" if facts.recorded.intact else _state_of(facts)
    reason = f"{state}; {_summary(facts)}"
    change = rebuild_change(folder, LEADER_EPOCH_CHECKPOINT, file, data, rule_of(facts), reason)
    return (change,), notes


def _notes(facts: EpochFacts) -> list[str]:
    decisions = [
        decision
        for decision in facts.merged.decisions
        if decision.reason not in {EpochReason.RECORDED, EpochReason.LOG}
    ]
    lines = [
        f"{decision.text}{'' if decision.conflict else ', trivial' if decision.trivial else ''}"
        for decision in decisions[:_SHOWN_AT_MOST]
    ]
    if len(decisions) > _SHOWN_AT_MOST:
        lines.append(
            f"{count_text(len(decisions) - _SHOWN_AT_MOST, 'more entry', 'more entries')} like these"
        )
    if any(decision.conflict and decision.start is None for decision in decisions):
        lines.append(
            "a follower that trusted a contradicted entry may have cut its log elsewhere: "
            "compare the replicas before this one leads (KIP-101, KIP-279)"
        )
    if facts.merged.may_be_late:
        lines.append(
            "a late start makes a follower that lags keep records that this leader never had: "
            "if another replica has its checkpoint, take the starts from there"
        )
    return lines
