"""Review of a swap that is to be completed: see ``krepair.plan.review``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from krepair.plan.figures import SOURCE_SUFFIXES, segment_bases
from krepair.plan.model import CompleteSwap, PartitionPlan, Policy
from krepair.plan.objection import Objection
from krepair.plan.review_remove import LEFTOVERS_FIX

_HEX_32: Final = re.compile(r"[0-9a-f]{32}")
_LARGEST_OFFSET: Final = 2**63 - 1
_MADE_SUFFIXES: Final = SOURCE_SUFFIXES[1:]


def review_swap(policy: Policy, partition: PartitionPlan, change: CompleteSwap) -> Iterator[Objection]:
    """What speaks against completing one swap of a partition.

    Args:
        policy: of the plan.
        partition: the partition.
        change: one of its changes.
    """
    where, base = change.change_id, change.base_offset
    files = {file.name: file for file in partition.files}
    log = f"{base:020d}.log.swap"
    if LEFTOVERS_FIX not in policy.fixes or change.rule != "KR601":
        yield Objection("RV31", where, "a swap is completed by --fix leftovers alone, for KR601")
    if not 0 <= base <= change.last_offset < _LARGEST_OFFSET or where != f"{partition.folder}/{log}":
        yield Objection("RV31", where, "offsets or change_id cannot be")
    if (
        log not in files
        or files[log].size != change.log_bytes
        or change.log_bytes <= 0
        or change.batches <= 0
    ):
        yield Objection("RV31", where, f"{log} is not there with {change.log_bytes} bytes, or has no batch")
    if any(_base_of(name) <= base for name in files if name.endswith(".cleaned")):
        yield Objection("RV31", where, "a .cleaned at or below it makes the swap void for every broker")
    yield from _replaced(partition, change)
    names = [made.name for made in change.makes]
    if names != sorted(set(names)) or not set(names) <= {f"{base:020d}{suffix}" for suffix in _MADE_SUFFIXES}:
        yield Objection("RV31", where, "it makes other files than its own indexes")
    if any(made.size < 0 or not _HEX_32.fullmatch(made.digest) for made in change.makes):
        yield Objection("RV31", where, "size or digest of an index cannot be")


def _base_of(name: str) -> int:
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else -1


def _replaced(partition: PartitionPlan, change: CompleteSwap) -> Iterator[Objection]:
    where, base = change.change_id, change.base_offset
    files = {file.name for file in partition.files}
    bases = segment_bases(partition.files)
    covered = tuple(each for each in bases if base <= each <= change.last_offset)
    if change.replaces != covered:
        yield Objection("RV31", where, f"replaces {change.replaces}, every broker replaces {covered}")
    stems = [f"{each:020d}{suffix}" for each in sorted({base, *covered}) for suffix in SOURCE_SUFFIXES]
    own = [f"{base:020d}{suffix}.swap" for suffix in _MADE_SUFFIXES]
    goes = tuple(sorted(name for name in [*stems, *own] if name in files))
    if change.goes != goes:
        yield Objection("RV31", where, "the files that go are not those of the segments replaced")
    if not set(change.copied) <= set(change.replaces):
        yield Objection("RV31", where, "a segment is copied that is not replaced")
