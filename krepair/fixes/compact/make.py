"""Staging of key compaction at ``apply``: write the new segments, repeat all decisions, build indexes, and verify.

One group may hold the last record of a key whose older records are in other groups. So every decision needs all
original logs of the partition. If an interrupted ``apply`` has committed some groups, their originals are read from the
backups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from msgspec.structs import replace

from krepair.commit.begin import StagedGroup, check_fresh
from krepair.engine.items import Failed, Place, ScanItem, ScanResult
from krepair.errors import KrepairError, StalePlanError
from krepair.fixes.compact.originals import (
    Originals,
    check_readings,
    compacted_groups,
    goes_by_plan,
    key_compaction,
    keys_by_base,
    originals_of,
    partition_to_prove,
    prepared_by_plan,
    proof_problem,
    readings_by_plan,
)
from krepair.fixes.evidence import NotKnownError, OtherReplicas, Staged, prove_markers, rows_elsewhere
from krepair.fixes.logs import entries_of, facts_at
from krepair.fixes.markers.make import (
    check_decisions,
    finish_groups,
    groups_of,
    other_logs_now,
    policy_now,
    read_others_now,
    verify_finished_groups,
)
from krepair.fixes.replicas import ReplicaLog
from krepair.fixes.second_readings import InTurn, SecondReading
from krepair.fixes.staging import Kind, Staging, Work, error_of
from krepair.formats.filenames import log_name
from krepair.next_command import PLAN, Next
from krepair.plan.model import FileFingerprint, MendLog, PartitionPlan, RewriteSegments
from krepair.rewrite.compaction.items import (
    CompactItem,
    CompactResult,
    CompactStageItem,
    KeysItem,
    KeysResult,
)
from krepair.rewrite.compaction.partitions import (
    CompactionInput,
    PreparedPartition,
    compact_items,
    prepare,
    rows_inline_of,
    stage_items,
)
from krepair.rewrite.compaction.proof import PartitionToProve, Verification, prove
from krepair.rewrite.segments.stage import not_as_planned
from krepair.rules.compaction import compacted_facts, secret_of
from krepair.rules.markers import stage_inputs
from krepair.rules.model import MarkerPolicy, SegmentFacts, Skipped

PROVEN: Final = Kind("new segments", "every record and every key against the kept originals")


@dataclass
class _Partition:
    """Partition whose groups of segments are staged.

    Attributes:
        staging: staging of the partition.
        originals: original logs, with their locations.
        facts: facts of the original logs, by base offset.
        compacted: facts of the original logs without the removed records, by base offset.
        prepared: compaction range and keys, as searched or as listed in the plan.
        proof: verification of all groups, begun before the groups are written.
        keys: keys found by the scan of the original logs, by base offset.
        readings: work items that read the originals which lose records, by base offset.
    """

    staging: Staging
    originals: Originals
    facts: dict[int, SegmentFacts] = field(default_factory=dict)
    compacted: dict[int, SegmentFacts] = field(default_factory=dict)
    prepared: PreparedPartition | None = None
    proof: PartitionToProve | None = None
    keys: dict[int, KeysResult] = field(default_factory=dict)
    readings: dict[int, CompactItem] = field(default_factory=dict)

    @cached_property
    def by_plan(self) -> bool:
        """True if the plan lists the kept records, so that no key is searched before the rewrite."""
        return goes_by_plan(self.staging.plan, self.originals)

    @property
    def place(self) -> Place:
        """Location of the original logs."""
        return self.originals.place

    @property
    def logs(self) -> dict[int, FileFingerprint]:
        """Fingerprint of each ``.log`` as planned or as grown since, by base offset."""
        return self.originals.logs

    @cached_property
    def staged(self) -> frozenset[int]:
        """Base offsets of the logs that this run rewrites."""
        return frozenset(source.base_offset for group in groups_of(self.staging) for source in group.sources)

    @property
    def groups(self) -> list[RewriteSegments]:
        """All groups of the plan that lose records, including committed ones."""
        return compacted_groups(self.staging.plan)


def stage_compacted_groups(work: Work, stagings: Sequence[Staging]) -> None:
    """Write, recheck, finish and verify the groups; each partition's problem is stored in its ``Staging``.

    The verification comes last and reads the written files: no segment may be swapped in before the verification.
    """
    partitions = list(_located(work, stagings))
    _scan(work, partitions)
    _prepare(work, partitions)
    verification = _begin_to_prove(work, partitions)
    _write(work, partitions, verification)
    _prepare_afterwards(work, partitions)
    _read_committed(work, partitions)
    _name_damage(work, partitions)
    for partition in _without_problem(partitions):
        with partition.staging.taking_problems():
            _recheck(partition)
    finish_groups(work, stagings)
    _prove(work, _without_problem(partitions), verification)


def _without_problem(partitions: Sequence[_Partition]) -> list[_Partition]:
    return [partition for partition in partitions if partition.staging.problem is None]


# -- where the originals are


def _located(work: Work, stagings: Sequence[Staging]) -> Iterator[_Partition]:
    for staging in stagings:
        with staging.taking_problems():
            for group in groups_of(staging):
                check_fresh(staging.folder, staging.plan, group)
            staging.folder.make_private_folders()
            yield _Partition(staging, originals_of(work, staging))


# -- decide again


def _scan(work: Work, partitions: Sequence[_Partition]) -> None:
    """Scan the original logs, and find the keys in the plan's cleanable range in the same reading.

    If the plan lists the kept records, no keys are searched, and a log that is rewritten is scanned by its writer.
    """
    from krepair.rewrite.compaction.tasks import find_keys
    from krepair.scan.scan import scan

    able = _without_problem(partitions)
    below, others = [], []
    for partition in able:
        for base in partition.logs:
            if not partition.by_plan and _is_below_the_bound(partition, base):
                below.append((partition, base))
            elif not partition.by_plan or base not in partition.staged:
                others.append((partition, base))
    with_keys = [
        KeysItem(
            place=partition.place,
            base_offset=base,
            size=partition.logs[base].size,
            aborted=b"",
            secret=_secret(partition),
            rows_inline=rows_inline_of(len(below)),
            scratch=work.scratch.path,
            scan=_scan_item(work, partition, base),
        )
        for partition, base in below
    ]
    for index, result in work.engine.map(find_keys, with_keys):
        partition, base = below[index]
        partition.keys[base] = result
        _take_scan(partition, base, result.scan or Failed(result.failure, result.why))
    for job, scanned in work.engine.each(scan, ((job, _scan_item(work, *job)) for job in others)):
        _take_scan(*job, scanned)


def _is_below_the_bound(partition: _Partition, base_offset: int) -> bool:
    span = partition.staging.plan.span
    return span is not None and base_offset < span.end_offset


def _scan_item(work: Work, partition: _Partition, base_offset: int) -> ScanItem:
    # The writers check the CRCs of the logs that they rewrite, on the same bytes that are written and proven; a check
    # here would read these logs twice.
    return _scan_of(
        work,
        partition.staging,
        partition.originals,
        base_offset,
        check_crc=base_offset not in partition.staged,
    )


def _scan_of(
    work: Work, staging: Staging, originals: Originals, base_offset: int, *, check_crc: bool
) -> ScanItem:
    return ScanItem(
        place=originals.place,
        base_offset=base_offset,
        size=originals.logs[base_offset].size,
        now_ms=work.plan.policy.now_ms,
        high_watermark=work.scan_watermark(staging),
        check_crc=check_crc,
    )


def _take_scan(partition: _Partition, base_offset: int, result: ScanResult | Failed) -> None:
    if isinstance(result, Failed):
        partition.staging.record_failure(result)
        return
    if result.txn_damage:
        partition.staging.record_failure(Failed("changed", result.txn_damage))
        return
    file = partition.logs[base_offset]
    facts = facts_at(base_offset, file.mtime_ns, result)
    if file.digest not in ("", facts.summary.headers):
        partition.staging.problem = partition.staging.problem or StalePlanError(
            f"{partition.staging.folder.at(file.name)}{not_as_planned(facts.summary)}"
        )
    partition.facts[base_offset] = facts
    if base_offset not in partition.staged:
        _share_facts(partition, base_offset)


def _share_facts(partition: _Partition, base_offset: int) -> None:
    """Pass the facts of a log with valid CRCs to the other fixes."""
    if base_offset not in _repaired_logs(
        partition.staging.plan
    ):  # other fixes need the facts after the repair
        partition.staging.facts[base_offset] = partition.facts[base_offset]


def _name_damage(work: Work, partitions: Sequence[_Partition]) -> None:
    """Search for a wrong CRC if logs differ from the plan, to name the damage: no reading checked all CRCs yet."""
    from krepair.scan.scan import scan

    jobs = [
        (partition, base)
        for partition in partitions
        if isinstance(partition.staging.problem, StalePlanError)
        for base in partition.logs
        if base in partition.staged
    ]
    items = ((job, replace(_scan_item(work, *job), check_crc=True)) for job in jobs)
    for (partition, base), result in work.engine.each(scan, items):
        if isinstance(result, ScanResult) and result.summary.damage:
            text = f"{partition.staging.folder.at(log_name(base))}{not_as_planned(result.summary)}"
            partition.staging.problem = StalePlanError(text)


def _repaired_logs(plan: PartitionPlan) -> frozenset[int]:
    """Return the base offsets of the logs that the plan cuts or excises."""
    return frozenset(change.base_offset for change in plan.changes if isinstance(change, MendLog))


def _prepare(work: Work, partitions: Sequence[_Partition]) -> None:
    inputs: list[tuple[_Partition, CompactionInput]] = []
    for partition in _without_problem(partitions):
        with partition.staging.taking_problems():
            if partition.by_plan:
                partition.readings = readings_by_plan(
                    work, partition.staging, partition.originals, partition.facts
                )
                continue
            facts = [partition.facts[base] for base in partition.logs]
            others = read_others_now(work, partition.staging, facts, partition.place)
            policy = policy_now(work, partition.staging, facts, others)
            inputs.append((partition, compaction_input(work, partition, facts, policy, others)))
    if not inputs:
        return
    prepared = prepare(work.engine, [job for _, job in inputs], work.scratch.path)
    for (partition, _), known in zip(inputs, prepared, strict=True):
        partition.prepared = known
        with partition.staging.taking_problems():
            _check_prepared(partition, known)
            partition.readings = compact_items(known, keys_by_base(partition.groups))


def _prepare_afterwards(work: Work, partitions: Sequence[_Partition]) -> None:
    """Repeat the decisions on partitions written by the plan's list, and compare these with the decisions in use."""
    for partition in _without_problem(partitions):
        if partition.by_plan:
            with partition.staging.taking_problems():
                facts = [partition.facts[base] for base in partition.logs]
                policy = policy_now(work, partition.staging, facts, OtherReplicas())
                partition.prepared = prepared_by_plan(
                    partition.staging.plan, partition.place, facts, policy, partition.readings
                )
                _check_prepared(partition, partition.prepared)
                check_readings(partition.staging, partition.prepared, partition.readings)


def compaction_input(
    work: Work,
    partition: _Partition,
    facts: Sequence[SegmentFacts],
    policy: MarkerPolicy,
    others: OtherReplicas,
) -> CompactionInput:
    secret = _secret(partition)
    try:
        elsewhere = rows_elsewhere(work.engine, others, secret, work.scratch.path)
    except NotKnownError as error:
        raise StalePlanError(f"{partition.staging.plan.folder}: {error}") from error
    return CompactionInput(
        partition.place,
        tuple(facts),
        policy,
        secret,
        partition.keys,
        elsewhere,
    )


def _secret(partition: _Partition) -> bytes:
    return secret_of(
        f"{file.name} {file.size} {file.mtime_ns} {file.digest}" for file in partition.logs.values()
    )


def _check_prepared(partition: _Partition, known: PreparedPartition) -> None:
    """Check that the compaction range and the keys equal those of the plan.

    Raises:
        KrepairError: range or keys differ, or could not be determined.
    """
    if known.problem is not None:
        raise _error_of(known.problem)
    plan = partition.staging.plan
    planned = key_compaction(plan)
    assert known.compaction_range is not None
    span = known.compaction_range.cleanable
    repeated = (span.start_offset, span.end_offset, known.keys)
    first, bound = (-1, -1) if plan.span is None else (plan.span.start_offset, plan.span.end_offset)
    if repeated != (first, bound, planned.keys):
        raise StalePlanError(
            f"{plan.folder}: what stays was decided again, and is not what the plan has: first offset, bound and "
            f"number of keys are {repeated}, the plan has {(first, bound, planned.keys)}"
        )


def _error_of(reason: Skipped) -> KrepairError:
    if reason.code == "disk":
        error = error_of("disk", reason.why)
        error.next_command = Next.of("apply", PLAN, "--scratch", "DIR")
        return error
    return error_of(reason.code if reason.code in {"unreadable", "elsewhere"} else "changed", reason.why)


# -- write


def _begin_to_prove(work: Work, partitions: Sequence[_Partition]) -> Verification:
    """Collect the inputs of the proof before the first write, so that the proof can check bytes as they are written."""
    for partition in _without_problem(partitions):
        with partition.staging.taking_problems():
            staged = {group.change_id for group in groups_of(partition.staging)}
            results = {
                group.base_offset: (
                    partition.staging.stage_folder
                    if group.change_id in staged
                    else partition.staging.folder.path
                )
                for group in partition.groups
            }
            ends = {base: facts.summary.valid_bytes for base, facts in partition.facts.items()}
            partition.proof = partition_to_prove(work, partition.staging, partition.originals, results, ends)
            if partition.prepared is not None:
                partition.proof.aborted = partition.prepared.aborted.tobytes()
    begun = [partition.proof for partition in _without_problem(partitions) if partition.proof is not None]
    return Verification(work.engine, begun, work.scratch.path if begun else "")


def _write(work: Work, partitions: Sequence[_Partition], verification: Verification) -> None:
    from krepair.rewrite.compaction.tasks import stage_compacted

    jobs: list[tuple[_Partition, RewriteSegments, CompactStageItem]] = []
    for partition in _without_problem(partitions):
        with partition.staging.taking_problems():
            for group in groups_of(partition.staging):
                jobs += [
                    (partition, group, item) for item in _stage_items(work, partition, group, verification)
                ]
    parts: dict[str, list[tuple[int, int]]] = {}
    for index, result in work.engine.map(stage_compacted, [item for _, _, item in jobs]):
        partition, group, item = jobs[index]
        if partition.by_plan and result.source is not None:
            _take_scan(partition, item.compact.base_offset, result.source)
        _take_compacted(partition, item.compact.base_offset, result)
        if partition.staging.problem is None:
            _share_facts(partition, item.compact.base_offset)
        number = [source.base_offset for source in group.sources].index(item.compact.base_offset)
        parts.setdefault(group.change_id, [(0, 0)] * len(group.sources))[number] = (
            group.sources[number].kept_bytes,
            result.written_crc,
        )
        if partition.proof is not None and result.checked is not None:
            partition.proof.beside.setdefault(item.target, []).append(result.checked)
    for partition in _without_problem(partitions):
        for group in groups_of(partition.staging):
            partition.staging.staged[group.change_id] = StagedGroup(tuple(parts.get(group.change_id, ())))


def _stage_items(
    work: Work, partition: _Partition, group: RewriteSegments, verification: Verification
) -> list[CompactStageItem]:
    assert partition.proof is not None
    keys = keys_by_base((group,))
    if len(keys) < len(group.sources):
        raise StalePlanError(f"{group.change_id}: the plan does not say what becomes of its keys")
    target = f"{partition.staging.stage_folder}/{log_name(group.base_offset)}"
    if work.disk.tree.is_there(target):
        work.disk.unlink(target)
    work.disk.reserve(target, group.log_bytes)
    checks = {
        source.base_offset: verification.item(partition.proof, (source,), target)
        for each in partition.proof.groups
        if each.result == target
        for source in each.sources
    }
    return stage_items(partition.readings, group.sources, keys, target, checks)


def _read_committed(work: Work, partitions: Sequence[_Partition]) -> None:
    """Compute again the segments that an interrupted apply has committed: later segments depend on their facts."""
    from krepair.rewrite.compaction.tasks import compact

    jobs = [
        (partition, base)
        for partition in _without_problem(partitions)
        for base in keys_by_base(partition.groups)
        if base not in partition.compacted
    ]
    items = (((partition, base), partition.readings[base]) for partition, base in jobs)
    for job, result in work.engine.each(compact, items):
        _take_compacted(*job, result)


def _take_compacted(partition: _Partition, base_offset: int, result: CompactResult) -> None:
    if result.failure or result.problem:
        name = log_name(base_offset)
        text = (
            result.why or f"{partition.staging.folder.at(name)}, position {result.position}: {result.problem}"
        )
        partition.staging.record_failure(Failed(result.failure or "changed", text))
        return
    if base_offset not in partition.facts:
        return  # a scan failed and was reported
    assert result.summary is not None
    entries = entries_of(result.entries)
    partition.compacted[base_offset] = compacted_facts(partition.facts[base_offset], result.summary, entries)


def _recheck(partition: _Partition) -> None:
    """Repeat the decisions from fresh readings, and compare these with the plan.

    Raises:
        StalePlanError: the decisions differ.
    """
    assert partition.prepared is not None
    plan = partition.staging.plan
    facts = [partition.compacted.get(base, partition.facts[base]) for base in partition.logs]
    decided = stage_inputs(facts, partition.prepared.input.policy, dict(plan.kept_last))
    check_decisions(partition.staging, decided)


# -- prove


def _prove(work: Work, partitions: Sequence[_Partition], verification: Verification) -> None:
    """Prove every rewritten group against its originals, before the first swap.

    After the swap, undo is the only way back: consumers would miss a wrongly removed record.
    """
    to_prove: list[tuple[_Partition, PartitionToProve]] = []
    staged_logs: list[Staged] = []
    for partition in partitions:
        with partition.staging.taking_problems():
            assert partition.proof is not None
            others = other_logs_now(work, partition.staging)
            partition.proof.elsewhere = tuple(log.all_of_it for log in others)
            to_prove.append((partition, partition.proof))
            staged_logs.append(_staged(partition, partition.proof, others))
    verification.finish([proof for _, proof in to_prove])
    prove_markers(work, staged_logs)
    for partition, proof in to_prove:
        problem = proof_problem(partition.staging.plan, proof)
        if problem:
            partition.staging.record_failure(Failed(proof.failure or "verify", problem))


def _staged(partition: _Partition, proof: PartitionToProve, others: tuple[ReplicaLog, ...]) -> Staged:
    """Return the logs before and after compaction; for an unchanged group, the original log is also the result."""
    results = {
        source.base_offset: group.result
        for group in proof.groups
        if group.result != group.sources[0].path
        for source in group.sources
    }
    logs = tuple(
        (base, path, size) for base, (path, size) in zip(partition.logs, proof.logs.logs, strict=True)
    )
    return Staged(partition.staging, partition.place, others, logs, results)


# -- verify


def verify_compacted_groups(work: Work, staging: Staging) -> Iterator[SecondReading]:
    """Yield readings that compare new segments with the plan, and with ``work.originals`` also with the backups.

    Raises:
        KrepairError: an original is neither in its place nor among the backups.
        OSError: an original cannot be read.
    """
    yield from verify_finished_groups(work, staging)
    groups = compacted_groups(staging.plan)
    if not work.originals or not staging.keep or len(groups_of(staging)) != len(groups):
        return  # no backups exist, or changes that are not applied were reported already
    try:
        originals = originals_of(work, staging)
    except StalePlanError:
        return  # partly purged: the remaining originals prove nothing about keys
    results = {group.base_offset: staging.folder.path for group in groups}
    proof = partition_to_prove(work, staging, originals, results, {})
    active = _scan_of(work, staging, originals, max(originals.logs), check_crc=True)
    item = ProofItem(proof, active, transactions=not goes_by_plan(staging.plan, originals))
    yield SecondReading(
        groups[0],
        PROVEN,
        InTurn(_prove_applied),
        (item,),
        lambda proofs: [proof_problem(staging.plan, proofs[0])],
        files=len(groups),
    )


class ProofItem(NamedTuple):
    """Repeated proof of every record and every key of a partition.

    Attributes:
        proof: proof of the partition.
        active: scan of the last log, the only log that may end in damage.
        transactions: True if the partition may hold transactions.
    """

    proof: PartitionToProve
    active: ScanItem
    transactions: bool


def _prove_applied(work: Work, items: Sequence[ProofItem]) -> Iterator[tuple[int, PartitionToProve]]:
    from krepair.rewrite.compaction.tasks import find_aborted
    from krepair.scan.scan import scan

    proofs = [item.proof for item in items]
    for index, result in work.engine.map(scan, [item.active for item in items]):
        if isinstance(result, ScanResult):
            *before, (base, _) = proofs[index].logs.segments
            ends = (*before, (base, result.summary.valid_bytes))
            proofs[index].logs = replace(proofs[index].logs, segments=ends)
    with_transactions = [item.proof for item in items if item.transactions]
    for index, aborted in work.engine.map(find_aborted, [proof.logs for proof in with_transactions]):
        if isinstance(aborted, Failed):
            with_transactions[index].take_failed(aborted)
        else:
            with_transactions[index].aborted = aborted
    prove(work.engine, proofs, work.scratch.path)
    return iter(enumerate(proofs))
