"""Plans for the review, each with one thing wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from krepair.plan.model import NewFile, PartitionPlan, Plan, RewriteSegments, RootPlan, Setting
from krepair.plan.planfile import seal
from krepair.plan.space import plan_peak_bytes
from tests.plan.plans import (
    DIGEST,
    FOLDER,
    completed_swap,
    fingerprint,
    good_plan,
    last_source,
    partition,
    removed_file,
    replaced_file,
    source,
)

Breaker = Callable[[Plan], Plan]


def whole(**fields: Any) -> Breaker:
    """Change fields of the plan itself."""
    return lambda plan: seal(replace(plan, **fields))


def policy_with(**fields: Any) -> Breaker:
    return lambda plan: seal(replace(plan, policy=replace(plan.policy, **fields)))


def setting_with(key: str, value: str) -> Breaker:
    def change(plan: Plan) -> Plan:
        rows = plan.policy.settings["__consumer_offsets"]
        kept = tuple(row for row in rows if row.key != key)
        new = (*kept, Setting(key=key, value=value, source="test"))
        return seal(replace(plan, policy=replace(plan.policy, settings={"__consumer_offsets": new})))

    return change


def raw(**fields: Any) -> Breaker:
    """Change fields of the partition and leave every other figure as it is."""

    def change(plan: Plan) -> Plan:
        place = next(place for place, part in enumerate(plan.partitions) if part.changes)
        parts = list(plan.partitions)
        parts[place] = replace(parts[place], **fields)
        return seal(replace(plan, partitions=tuple(parts)))

    return change


def refigured(part: PartitionPlan) -> Breaker:
    """Another partition, with figures and sums that are right for it."""
    return lambda plan: good_plan(part)


def rewrite() -> RewriteSegments:
    change = partition().changes[0]
    assert isinstance(change, RewriteSegments)
    return change


def with_change(**fields: Any) -> Breaker:
    """Change fields of the group; figures that follow are made right."""
    return refigured(partition(changes=(replace(rewrite(), **fields),)))


def with_first(**fields: Any) -> Breaker:
    """Change fields of the first source, nothing else."""
    return with_change(sources=(source(0, **fields), last_source()))


def with_last(**fields: Any) -> Breaker:
    return with_change(sources=(source(0), replace(last_source(), **fields)))


def root() -> RootPlan:
    """One checkpoint of the root, mended."""
    name = "recovery-point-offset-checkpoint"
    change = replaced_file(name, folder=".", rule="KR403", size_before=20, size_after=12)
    return RootPlan(keeper=FOLDER, files=(fingerprint(name, 20),), changes=(change,))


def with_root(**fields: Any) -> Breaker:
    """A good plan that also mends a file of the root, some of whose fields are broken."""

    def change(plan: Plan) -> Plan:
        fixes = tuple(sorted({*plan.policy.fixes, "checkpoints"}))
        policy = replace(plan.policy, fixes=fixes)
        broken = replace(root(), **fields)
        changed = replace(plan, policy=policy, root=broken)
        return seal(replace(changed, peak_extra_bytes=plan_peak_bytes(changed)))

    return change


def root_change(**fields: Any) -> Breaker:
    change = replace(root().changes[0], **fields)
    return with_root(changes=(change,), files=(replace(root().files[0], name=change.name),))


def with_file(name: str, **fields: Any) -> Breaker:
    files = tuple(replace(file, **fields) if file.name == name else file for file in partition().files)
    return refigured(partition(files=files))


def replacement(**fields: Any) -> Breaker:
    """A plan that replaces an index instead, allowed by its fixes."""
    values = {"method": "truncate", "size_before": 12, "size_after": 0}
    part = partition(changes=(replaced_file(f"{0:020d}.timeindex", **(values | fields)),))
    return lambda plan: good_plan(part, fixes=("index",))


def removal(name: str, rule: str = "KR601", fix: str = "leftovers", **fields: Any) -> Breaker:
    """A plan that removes one file."""
    change = removed_file(name, **({"rule": rule, "size_before": 7} | fields))
    files = {file.name: file for file in partition().files} | {name: fingerprint(name, 7)}
    part = partition(changes=(change,), files=tuple(files[one] for one in sorted(files)))
    return lambda plan: good_plan(part, fixes=(fix,))


def swap(**fields: Any) -> Breaker:
    """A plan that completes a swap over the second segment."""
    log, index = f"{100:020d}.log.swap", f"{100:020d}.index.swap"
    change: dict[str, Any] = {
        "log_bytes": 500,
        "last_offset": 150,
        "goes": tuple(
            sorted(
                [index, *(f.name for f in partition().files if re.match(f"{100:020d}.(log|.*index)", f.name))]
            )
        ),
        "makes": (NewFile(name=f"{100:020d}.index", size=8, digest=DIGEST),),
    }
    extra = fields.pop("files", ())
    files = [*partition().files, fingerprint(log, 500), fingerprint(index, 8), *extra]
    part = partition(
        changes=(completed_swap(100, **(change | fields)),),
        files=tuple(sorted(files, key=lambda file: file.name)),
    )
    return lambda plan: good_plan(part, fixes=("leftovers",))
