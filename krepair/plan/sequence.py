"""A sequence of plans: the ordered set of plans that frees a full disk, in one file with one digest.

Each step is a plan of its own, reviewed, applied, taken back and purged as any plan is. No partition is in two steps,
so a step changes nothing that a later one was made of. The file has the canonical form of a plan file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from krepair.errors import StalePlanError, UsageError
from krepair.plan.actions.table import action_of
from krepair.plan.facts import sizes_by_name
from krepair.plan.keep import INPLACE, can_all_be_taken_back
from krepair.plan.model import FORMAT_VERSION, Asked, PartitionPlan, Plan, Preview
from krepair.plan.planfile import PLAN_ID_DIGITS, digest_of, dumps, kind_of, loads, read_bytes

KIND: Final = "sequence"
NO_ROOM: Final = "room"
"""Code of a partition whose changes do not fit even after all steps."""
_MAKE_ANEW: Final = "krepair plan LOGDIR --free --out PLAN"


class Step(Struct, frozen=True, kw_only=True):
    """One plan of a sequence, with the room that it was made for.

    Attributes:
        plan: the whole plan.
        needs_bytes: what its apply needs on top, with the copy of the plan.
        needs_files: new files and folders meanwhile.
        free_before: bytes that are expected to be free when it begins, for whoever applies it.
        free_after: bytes that are expected to be free when it has ended; what it keeps is not freed yet.
        reserved_bytes: how much of what it needs only root has; 0 if it does without.
    """

    plan: Plan
    needs_bytes: int
    needs_files: int
    free_before: int
    free_after: int
    reserved_bytes: int = 0

    @property
    def can_be_taken_back(self) -> bool:
        """Whether undo can put back everything until purge."""
        return can_all_be_taken_back([change for one in self.plan.partitions for change in one.changes])


class LeftOut(Struct, frozen=True, kw_only=True):
    """A partition that no step changes, though there is something in it to do or to look at.

    Attributes:
        partition: folder name.
        code: why, as in a plan; ``room`` if its changes do not fit even after all steps.
        why: in words.
        next_command: what to type about it, or empty.
        bytes_missing: of ``room``: how many bytes more have to be free; otherwise 0.
        files_missing: of ``room``: how many more files there has to be room for; otherwise 0.
        originals: of ``room``: bytes that its changes replace, so that copies of them take as many; otherwise 0.
    """

    partition: str
    code: str
    why: str
    next_command: str = ""
    bytes_missing: int = 0
    files_missing: int = 0
    originals: int = 0


class PlanSequence(Struct, frozen=True, kw_only=True):
    """Plans of one log directory, in the order in which each makes the room that the next one needs.

    Attributes:
        format_version: major.minor of this layout; that of a plan.
        tool_version: version of the krepair that wrote it.
        kind: always ``sequence``: by it the file is told from a plan.
        plan_id: the first eight hex digits of the digest. The private sub-folders have the ids of the steps' plans.
        host: name of the host on which it was made.
        log_dir: absolute path of the log directory.
        free_bytes: bytes that were free for every user when it was made.
        free_files: files for which there was room then; -1 if the file system has no limit.
        reserved_bytes: bytes that were free for root alone; 0 if that was not asked for.
        keep: where originals stay, as it was typed; each step's plan has its own.
        asked: the options that were given, as far as they are in no policy; a step's plan names its partitions.
        steps: first step first.
        left_out: by folder.
        digest: 64 hex digits over the canonical bytes with ``digest`` and ``plan_id`` empty.
    """

    format_version: str = FORMAT_VERSION
    tool_version: str = ""
    kind: Literal["sequence"] = KIND
    plan_id: str = ""
    host: str = ""
    log_dir: str = ""
    free_bytes: int = 0
    free_files: int = -1
    reserved_bytes: int = 0
    keep: str = INPLACE
    asked: Asked
    steps: tuple[Step, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    digest: str = ""

    @property
    def is_preview(self) -> bool:
        """Whether it was made while a broker was running."""
        return any(isinstance(step.plan.preview, Preview) for step in self.steps)


_decoder: Final = msgspec.json.Decoder(PlanSequence)


def seal(sequence: PlanSequence) -> PlanSequence:
    """The sequence with computed ``digest`` and ``plan_id``."""
    digest = _digest_of(sequence)
    return replace(sequence, digest=digest, plan_id=digest[:PLAN_ID_DIGITS])


def _digest_of(sequence: PlanSequence) -> str:
    return hashlib.sha256(dumps(replace(sequence, digest="", plan_id=""))).hexdigest()


def read_file(path: str) -> Plan | PlanSequence:
    """Read the file of a plan, or of a sequence.

    Raises:
        UsageError: it is neither.
        UnreadableError: the operating system could not read it.
        StalePlanError: it was edited.
    """
    data = read_bytes(path)
    return loads_sequence(data, path) if kind_of(data) else loads(data, path)


def loads_sequence(data: bytes, name: str) -> PlanSequence:
    """Read a sequence and check that it was not changed, and that its steps belong together.

    Args:
        data: the whole file.
        name: name of the file, for messages.

    Raises:
        UsageError: it is of a kind or of a major format version that this krepair does not know.
        StalePlanError: it was changed.
    """
    kind = kind_of(data)
    if kind != KIND:
        raise UsageError(
            f"{name}: a file of kind {kind[:40]!r}; this krepair knows plans and sequences of plans"
        )
    try:
        sequence = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        words = " ".join(str(error).split())[:200]
        raise StalePlanError(
            f"{name}: a sequence of plans that was edited or damaged: {words}", next_command=_MAKE_ANEW
        ) from None
    if sequence.format_version.partition(".")[0] != FORMAT_VERSION.partition(".")[0]:
        raise UsageError(
            f"{name}: plan format {sequence.format_version[:40]!r} (krepair {sequence.tool_version[:40]!r}); this "
            f"krepair reads {FORMAT_VERSION.partition('.')[0]}.x",
            next_command=_MAKE_ANEW,
        )
    fault = next(_faults(sequence, data), "")
    if fault:
        raise StalePlanError(f"{name}: the sequence of plans was edited: {fault}", next_command=_MAKE_ANEW)
    return sequence


def _faults(sequence: PlanSequence, data: bytes) -> Iterator[str]:
    """What shows that a sequence is not as krepair wrote it."""
    digest = _digest_of(sequence)
    if sequence.digest != digest:
        yield f"its values have digest {digest[:16]}..., it says {sequence.digest[:16]}..."
    if sequence.plan_id != digest[:PLAN_ID_DIGITS]:
        yield f"plan_id is {sequence.plan_id[:40]!r}, its digest begins {digest[:PLAN_ID_DIGITS]!r}"
    if dumps(sequence) != data:
        yield "fields were added or moved, or the text was formatted again"
    seen: dict[str, int] = {}
    for number, step in enumerate(sequence.steps, 1):
        plan = step.plan
        if plan.digest != digest_of(plan) or plan.plan_id != plan.digest[:PLAN_ID_DIGITS]:
            yield f"the plan of step {number} has another digest than its values"
        if (plan.host, plan.log_dir) != (sequence.host, sequence.log_dir):
            yield f"step {number} is for {plan.host}:{plan.log_dir}"
        if plan.root is not None and len(sequence.steps) > 1:
            yield f"step {number} changes files of the root, which only a single step may do"
        for one in plan.changing:
            if one.folder in seen:
                yield f"{one.folder} is in step {seen[one.folder]} and in step {number}"
            seen[one.folder] = number


def merged(sequence: PlanSequence) -> Plan:
    """One plan with the partitions and the sums of all steps, to be shown and compared; it is never applied.

    Raises:
        UsageError: the sequence has no step.
    """
    if not sequence.steps:
        raise UsageError(f"sequence {sequence.plan_id} has no step", next_command="krepair show PLAN")
    plans = [step.plan for step in sequence.steps]
    partitions = sorted(
        (one for plan in plans for one in plan.partitions),
        key=lambda one: (one.topic, one.partition, one.folder),
    )
    settings = {topic: rows for plan in plans for topic, rows in plan.policy.settings.items()}
    risks = {risk: None for plan in plans for risk in plan.risks}
    last = plans[-1]
    return replace(
        last,
        plan_id=sequence.plan_id,
        digest=sequence.digest,
        policy=replace(last.policy, settings=settings, keep=sequence.keep),
        asked=sequence.asked,
        partitions=tuple(partitions),
        freed_at_apply=sum(plan.freed_at_apply for plan in plans),
        freed_at_purge=sum(plan.freed_at_purge for plan in plans),
        peak_extra_bytes=max(plan.peak_extra_bytes for plan in plans),
        expected_seconds=round(sum(plan.expected_seconds for plan in plans), 1),
        uncleanable_partitions=sum(plan.uncleanable_partitions for plan in plans),
        uncleanable_bytes=sum(plan.uncleanable_bytes for plan in plans),
        risks=tuple(risks),
    )


def originals_out(partition: PartitionPlan) -> int:
    """Bytes of the originals that its changes replace."""
    sizes = sizes_by_name(partition.files)
    return sum(action_of(change).space(change, sizes).taken_out for change in partition.changes)
