"""Each clause of the review, just past its limit and just within it: the objection raised, or none.

``test_review`` shows that each code is raised; here every single condition has a row of its own, told by its words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from krepair.plan.model import Commit, FileFingerprint, NewFile, NotReversible, Plan, RewriteSegments
from krepair.plan.review import review
from krepair.plan.space import with_figures
from tests.plan.plans import (
    DIGEST,
    FOLDER,
    LAST_MTIME_NS,
    fingerprint,
    good_plan,
    last_source,
    left_alone,
    nothing,
    partition,
    policy,
    replaced_file,
    source,
    tally,
)
from tests.plan.reviewed import (
    Breaker,
    policy_with,
    raw,
    refigured,
    removal,
    replacement,
    rewrite,
    root,
    root_change,
    setting_with,
    swap,
    whole,
    with_change,
    with_file,
    with_first,
    with_last,
    with_root,
)

FAR = 2**31


@dataclass(frozen=True)
class Case:
    """A plan and what is said of it: each text is a part of one objection, and there are no other objections."""

    name: str
    breaker: Breaker
    texts: tuple[str, ...] = ()


def told(case: Case) -> list[str]:
    return [f"{one.code} {one.text}" for one in review(case.breaker(good_plan()))]


def both(*breakers: Breaker) -> Breaker:
    def change(plan: Plan) -> Plan:
        for breaker in breakers:
            plan = breaker(plan)
        return plan

    return change


def unfenced(order: Any, version: str) -> Breaker:
    commit = Commit(order=order, fence=False, why="x")
    return both(policy_with(broker_version=version), whole(commit=commit))


def three() -> Any:
    """A group of three segments; the one in the middle has a snapshot too."""
    middle = source(50, aborted_kept=())
    change = replace(
        rewrite(),
        sources=(source(0), middle, last_source()),
        log_bytes=578 + 378,
        batches=7,
        removes_snapshots=(f"{50:020d}.snapshot", f"{100:020d}.snapshot"),
    )
    more = [fingerprint(f"{50:020d}.log", 1000), fingerprint(f"{50:020d}.snapshot", 40)]
    files = tuple(sorted([*partition().files, *more], key=lambda file: file.name))
    return partition(changes=(change,), files=files, log_bytes_before=3500)


def three_with(**fields: Any) -> Breaker:
    part = three()
    return refigured(replace(part, changes=(replace(part.changes[0], **fields),)))


def alone(base: int = 0, **fields: Any) -> RewriteSegments:
    """A group of one segment, from which batches go."""
    values: dict[str, Any] = {
        "change_id": f"{FOLDER}/{base:020d}",
        "base_offset": base,
        "sources": (source(0),),
        "log_bytes": 378,
        "batches": 2,
        "mtime_ns": 1_700_000_000_000_000_000,
        "last_offset": 99,
        "removes_snapshots": (),
    }
    return replace(rewrite(), **(values | fields))


def single(**fields: Any) -> Breaker:
    return refigured(partition(changes=(alone(**fields),)))


def with_its_files(
    breaker: Breaker,
    changed: Callable[[list[FileFingerprint]], list[FileFingerprint]],
    fix: str = "leftovers",
    **fields: Any,
) -> Breaker:
    """The plan that a breaker makes, with other files in its folder."""

    def change(plan: Plan) -> Plan:
        part = breaker(plan).partitions[0]
        files = tuple(sorted(changed(list(part.files)), key=lambda file: file.name))
        return good_plan(with_figures(replace(part, files=files, **fields), policy()), fixes=(fix,))

    return change


def large(size: int) -> Breaker:
    """One segment of which ``size`` bytes stay."""
    kept = source(
        0,
        log_bytes=size + 622,
        kept_bytes=size,
        reasons=(tally("K01", 1, size - 78), tally("K02", 1, 78), tally("D01", 4, 310), tally("D03", 4, 312)),
    )
    files = tuple(
        replace(file, size=size + 622) if file.name == f"{0:020d}.log" else file for file in partition().files
    )
    change = alone(sources=(kept,), log_bytes=size)
    return refigured(partition(files=files, changes=(change,), log_bytes_before=size + 622 + 1500))


def same_size() -> Breaker:
    """Two sources, of which as many bytes stay as the first one had."""
    kept = source(
        0,
        kept_bytes=800,
        kept_batches=3,
        reasons=(tally("K01", 2, 722), tally("K02", 1, 78), tally("D01", 2, 122), tally("D03", 1, 78)),
        batches=6,
    )
    return with_change(sources=(kept, last_source()), log_bytes=1000, batches=6)


def nothing_of_the_last() -> Breaker:
    """The batches of the last source all go; the new log ends with what stays of the first."""
    gone = source(
        100,
        kept_bytes=0,
        kept_batches=0,
        kept_records=0,
        kept_markers=0,
        reasons=(tally("D01", 5, 500), tally("D03", 5, 500)),
        aborted_kept=(),
    )
    return with_change(sources=(source(0), gone), log_bytes=378, batches=2, last_offset=99)


def empty_behind() -> Breaker:
    """The last batch is kept by its position; a source without batches follows."""
    first = replace(last_source(), base_offset=0)
    empty = source(
        100,
        log_bytes=0,
        batches=0,
        kept_bytes=0,
        kept_batches=0,
        kept_records=0,
        kept_markers=0,
        reasons=(),
        aborted_kept=(),
    )
    files = tuple(
        replace(file, size=0) if file.name == f"{100:020d}.log" else file for file in partition().files
    )
    change = replace(rewrite(), sources=(first, empty), log_bytes=200, batches=3, last_offset=99)
    return refigured(partition(files=files, changes=(change,), log_bytes_before=1500))


def emptied_log() -> Breaker:
    """The only snapshot goes from a partition that holds no offset any more."""
    name = f"{150:020d}.snapshot"
    return with_its_files(
        removal(name, "KR501", "snapshots"),
        lambda files: [one for one in files if not one.name.endswith(".snapshot") or one.name == name],
        "snapshots",
        log_start_offset=260,
    )


def tiny(size: int, *, batches: int = 1, least: int = 26) -> Breaker:
    """A group of one segment in which one old message stays."""
    kept = source(
        0,
        kept_bytes=size,
        kept_batches=batches,
        kept_records=batches,
        kept_markers=0,
        reasons=(tally("K01", batches, size), tally("D01", 4, 1000 - 312 - size), tally("D03", 4, 312)),
        batches=8 + batches,
        aborted_kept=(),
    )
    assert size >= least * batches
    return single(sources=(kept,), log_bytes=size, batches=batches)


def far_apart(base: int, last: int) -> Breaker:
    """A group from ``base`` on whose last offset is far away."""
    first = replace(source(base), aborted_kept=())
    end = last + 1
    names = [(f"{base:020d}.log", 1000), (f"{end:020d}.log", 500)]
    files = tuple(fingerprint(name, size) for name, size in names)
    span = partition().span
    assert span is not None
    return refigured(
        partition(
            files=files,
            changes=(alone(base, sources=(first,), last_offset=last),),
            span=replace(span, start_offset=base, end_offset=end),
            log_end_offset=end + 1,
            high_watermark=end + 1,
            log_bytes_before=1500,
        )
    )


def second_alone() -> Breaker:
    """Only the second segment is rewritten."""
    values = {"log_bytes": 200, "batches": 3, "mtime_ns": LAST_MTIME_NS, "last_offset": 199}
    return refigured(partition(changes=(alone(100, sources=(last_source(),), **values),)))


def overlapping() -> Breaker:
    """The second group begins with the last source of the first."""
    second = second_alone()(good_plan()).partitions[0].changes[0]
    return refigured(partition(changes=(rewrite(), second)))


def without(*names: str, **fields: Any) -> Breaker:
    """The good group in a folder without these files."""
    files = tuple(file for file in partition().files if file.name not in names)
    logs = sum(file.size for file in files if file.name.endswith(".log"))
    change = replace(rewrite(), **fields)
    return refigured(partition(files=files, changes=(change,), log_bytes_before=logs))


def no_snapshots(**fields: Any) -> Breaker:
    return without(f"{100:020d}.snapshot", f"{200:020d}.snapshot", removes_snapshots=(), **fields)


def removal_of(size: int, **fields: Any) -> Breaker:
    """A leftover of this size goes."""
    name = f"{9:020d}.log.deleted"
    return with_its_files(
        removal(name, size_before=size, **fields),
        lambda files: [*(one for one in files if one.name != name), fingerprint(name, size)],
    )


def removal_without_snapshots() -> Breaker:
    return with_its_files(
        removal(f"{9:020d}.log.deleted"),
        lambda files: [one for one in files if not one.name.endswith(".snapshot")],
    )


def small_swap(size: int) -> Breaker:
    """The ``.log.swap`` is there, and has few bytes."""
    return with_its_files(
        swap(log_bytes=size),
        lambda files: [replace(one, size=size) if one.name.endswith(".log.swap") else one for one in files],
    )


def first_swap() -> Breaker:
    """A swap over the first segment, at offset 0."""
    goes = sorted(file.name for file in partition().files if file.name.startswith(f"{0:020d}."))
    log = f"{0:020d}.log.swap"
    return swap(
        change_id=f"{FOLDER}/{log}",
        base_offset=0,
        last_offset=99,
        replaces=(0,),
        goes=tuple(goes),
        makes=(NewFile(name=f"{0:020d}.index", size=8, digest=DIGEST),),
        files=(fingerprint(log, 500),),
    )


def mixed() -> Breaker:
    """A group and an index of another segment."""
    name = f"{200:020d}.index"
    index = replacement(
        name=name,
        change_id=f"{FOLDER}/{name}",
        rule="KR203",
        size_before=-1,
        size_after=8,
        method="regenerate",
    )(good_plan())
    changes = (rewrite(), *index.partitions[0].changes)
    return lambda _: good_plan(partition(changes=changes), fixes=("index", "markers"))


def with_newest_merged() -> Breaker:
    files = [file for file in partition().files if file.name != f"{200:020d}.snapshot"]
    return refigured(partition(files=(*files, fingerprint("leader-epoch-checkpoint", 9))))


def both_at_200() -> Breaker:
    span = partition().span
    assert span is not None
    change = replace(rewrite(), last_offset=200)
    return refigured(partition(changes=(change,), span=replace(span, end_offset=260)))


def one_of_the_last() -> Breaker:
    """One batch of the last source stays, and the last offset is below it."""
    last = source(
        100,
        kept_bytes=300,
        kept_batches=1,
        kept_markers=0,
        reasons=(tally("K01", 1, 300), tally("D01", 4, 388), tally("D03", 4, 312)),
        batches=9,
        aborted_kept=(),
    )
    return with_change(sources=(source(0), last), log_bytes=678, batches=3, last_offset=99)


def snapshot_by_epochs() -> Breaker:
    name = f"{260:020d}.snapshot"
    return both(
        replacement(
            name=name, change_id=f"{FOLDER}/{name}", rule="KR401", method="regenerate", size_before=-1
        ),
        policy_with(fixes=("epochs",)),
    )


def last_emptied_before() -> Breaker:
    last = replace(
        last_source(),
        reasons=(tally("K05", 1, 78), tally("K07", 1, 61), tally("K08", 1, 61), tally("D03", 7, 800)),
        drop_unstamped=True,
    )
    return with_change(sources=(source(0), last))


def waiting() -> Breaker:
    """Markers without data stay, since their segment is too young."""
    reasons = (tally("K01", 1, 300), tally("K02", 1, 78), tally("K03", 4, 312), tally("D01", 4, 310))
    kept = source(0, kept_bytes=690, kept_batches=6, kept_markers=5, reasons=reasons, drop_unstamped=False)
    return single(sources=(kept,), log_bytes=690, batches=6)


def no_marker() -> Breaker:
    reasons = (tally("K01", 1, 300), tally("K02", 1, 78), tally("D01", 8, 622))
    return with_first(reasons=reasons, drop_unstamped=False)


ALL_INDEXES = tuple(
    NewFile(name=f"{100:020d}.{suffix}", size=12, digest=DIGEST)
    for suffix in ("index", "timeindex", "txnindex")
)


def with_span(**fields: Any) -> Breaker:
    span = partition().span
    assert span is not None
    return refigured(partition(span=replace(span, **fields)))


def with_files(*names: str, **fields: Any) -> Breaker:
    """More files in the folder than the good partition has."""
    more = [fingerprint(name, 40) for name in names]
    files = sorted([*partition().files, *more], key=lambda file: file.name)
    return refigured(partition(files=tuple(files), **fields))


def epochs(**fields: Any) -> Breaker:
    """A plan that makes the leader epochs anew."""
    name = "leader-epoch-checkpoint"
    change = {"rule": "KR401", "size_before": 20, "size_after": 44}
    fixes = fields.pop("fixes", ("epochs",))
    files = (*partition().files, fingerprint(name, 20))
    part = partition(files=files, changes=(replaced_file(name, **(change | fields)),))
    return lambda plan: good_plan(part, fixes=fixes)


def root_file(**fields: Any) -> Breaker:
    return with_root(files=(replace(root().files[0], **fields),))


def swap_of(**fields: Any) -> Breaker:
    """The good swap with other files that it makes."""
    made: dict[str, Any] = {"name": f"{100:020d}.index", "size": 8, "digest": DIGEST}
    return swap(makes=(NewFile(**(made | fields)),))


def dead_swap(name: str, *others: str) -> Breaker:
    """A plan that removes a leftover beside other files."""
    return with_its_files(removal(name), lambda files: [*files, *(fingerprint(other, 3) for other in others)])


WRONG = [
    Case("no batch at all", with_change(batches=0), ("RV21 no batch would be left",)),
    Case(
        "less than a message",
        with_change(log_bytes=25),
        ("RV21 no batch would be left",),
    ),
    Case("a last offset below the one batch that stays", one_of_the_last(), ("RV21 last offset 99",)),
    Case(
        "a snapshot by the fix of epochs",
        snapshot_by_epochs(),
        ("RV25 '00000000000000000260.snapshot' is not a file that --fix epochs replaces",),
    ),
    Case(
        "a swap up to the last offset but one",
        swap(last_offset=2**63 - 2),
        ("RV31 it replaces segments", "RV31 the files"),
    ),
    Case(
        "a folder that is no name", refigured(left_alone(folder="..")), ("RV09 folder '..' is not a plain",)
    ),
    Case(
        "nothing is kept",
        both(with_change(undo=NotReversible(why="x")), policy_with(keep="none")),
        ("RV05 keep 'none' is not known",),
    ),
    Case(
        "groups that share a segment",
        overlapping(),
        ("RV30 00000000000000000100.index is touched by two",),
    ),
    Case(
        "a replacement outside of its folder",
        replacement(name="../x", change_id=f"{FOLDER}/../x", size_before=-1, method="regenerate"),
        ("RV09 file '../x'", "RV25 '../x' is not a file"),
    ),
    Case(
        "a removal by a rule that is none",
        removal(f"{9:020d}.log.deleted", rule="KR999"),
        (
            "RV25 'KR999' is not a rule",
            "RV25 '00000000000000000009.log.deleted' is not a file that a fix removes",
        ),
    ),
    Case(
        "a root file's fingerprint under another name",
        root_file(name="x"),
        ("RV28 changes and fingerprints", "RV28 the file has no fingerprint"),
    ),
    Case(
        "the newest snapshot beside other files",
        with_newest_merged(),
        ("RV23 no producer snapshot would be left", "RV23 the producer snapshots that go"),
    ),
    Case(
        "a last offset of the next segment", both_at_200(), ("RV21 last offset 200 is not in its last kept",)
    ),
    Case(
        "a swap beside a .cleaned of no number",
        swap(files=(fingerprint("x.cleaned", 1),)),
        ("RV31 there is a .cleaned",),
    ),
    Case(
        "a swap beside a .cleaned of other digits",
        swap(files=(fingerprint("٩٩٩.cleaned", 1),)),
        ("RV31 there is a .cleaned",),
    ),
    Case(
        "a swap beside a .cleaned of too many digits",
        swap(files=(fingerprint("9" * 21 + ".log.cleaned", 1),)),
        ("RV31 there is a .cleaned",),
    ),
    Case("P1 without fence for 3.0", unfenced("P1", "3.0.0"), ("RV04 order P1 without the recovery guard",)),
    Case("P1 without fence for 3.9", unfenced("P1", "3.9.2"), ("RV04 order P1 without the recovery guard",)),
    Case("P2 without fence for 2.8", unfenced("P2", "2.8.2"), ("RV04 order P2 without the recovery guard",)),
    Case(
        "P1 without fence for no version", unfenced("P1", ""), ("RV04 order P1 without the recovery guard",)
    ),
    Case(
        "P2 without fence for no number", unfenced("P2", "x"), ("RV04 order P2 without the recovery guard",)
    ),
    Case(
        "a file outside of a folder left alone",
        lambda plan: replace(plan, partitions=(left_alone(files=(fingerprint("../x", 1),)),)),
        ("RV09 file '../x'",),
    ),
    Case(
        "a folder of another partition",
        refigured(nothing(folder="__consumer_offsets-2")),
        ("RV09 folder is not that of",),
    ),
    Case("a tiered topic in capitals", setting_with("remote.storage.enable", " TRUE "), ("RV13 ",)),
    Case(
        "a span of nothing",
        with_span(start_offset=200),
        ("RV16 cleanable range 200 to 200", "RV16 offsets 0 to"),
    ),
    Case("a span from below", with_span(start_offset=-1), ("RV16 cleanable range -1 to 200",)),
    Case(
        "a group below its span",
        with_span(start_offset=1),
        ("RV16 offsets 0 to 199 are not in the cleanable",),
    ),
    Case(
        "snapshots in another order",
        three_with(removes_snapshots=(f"{100:020d}.snapshot", f"{50:020d}.snapshot")),
        ("RV23 the producer snapshots that go",),
    ),
    Case(
        "a snapshot twice",
        three_with(removes_snapshots=(f"{50:020d}.snapshot",) * 2),
        ("RV23 the producer snapshots that go",),
    ),
    Case(
        "a file that is no snapshot",
        with_change(removes_snapshots=(f"{100:020d}.index",)),
        ("RV23 the producer snapshots that go",),
    ),
    Case(
        "the snapshot of a segment that stays",
        with_files(
            f"{0:020d}.snapshot", changes=(replace(rewrite(), removes_snapshots=(f"{0:020d}.snapshot",)),)
        ),
        ("RV23 the producer snapshots that go",),
    ),
    Case(
        "a replacement of a longer name",
        replacement(
            name=f"{0:020d}.timeindex~",
            change_id=f"{FOLDER}/{0:020d}.timeindex~",
            size_before=-1,
            method="regenerate",
        ),
        ("RV25 '00000000000000000000.timeindex~' is not a file",),
    ),
    Case(
        "a fix that was not chosen",
        both(replacement(), policy_with(fixes=("epochs",))),
        ("RV25 'KR201' is not a rule",),
    ),
    Case(
        "leader epochs that are cut",
        epochs(method="truncate", size_after=4),
        ("RV25 'leader-epoch-checkpoint' is regenerated",),
    ),
    Case(
        "leader epochs by another fix",
        epochs(rule="KR201", fixes=("index",)),
        ("RV25 'leader-epoch-checkpoint' is not a file",),
    ),
    Case(
        "an index by the fix of epochs",
        both(replacement(rule="KR401"), policy_with(fixes=("epochs",))),
        ("RV25 '00000000000000000000.timeindex' is not a file",),
    ),
    Case("a keeper without number", with_root(keeper="plain"), ("RV28 keeper",)),
    Case("a root file of negative size", root_file(size=-1), ("RV28 the file has no fingerprint",)),
    Case("a root file of negative time", root_file(mtime_ns=-1), ("RV28 the file has no fingerprint",)),
    Case("a root file of three bytes", root_change(size_after=3), ("RV28 size_before",)),
    Case(
        "a root file twice",
        with_root(changes=root().changes * 2, files=root().files * 2),
        ("RV28 changes and",),
    ),
    Case("a root file with another id", root_change(change_id="./x"), ("RV28 'recovery-point",)),
    Case(
        "a swap up to the last offset",
        swap(last_offset=2**63 - 1),
        ("RV31 its offsets", "RV31 it replaces segments", "RV31 the files"),
    ),
    Case(
        "the newest snapshot of a merged segment",
        without(f"{200:020d}.snapshot"),
        ("RV23 no producer snapshot would be left", "RV23 the producer snapshots that go"),
    ),
    Case("a swap with another id", swap(change_id=f"{FOLDER}/x"), ("RV31 its offsets or its change_id",)),
    Case(
        "a swap by another fix", both(swap(), policy_with(fixes=("index",))), ("RV31 a swap is completed by",)
    ),
    Case(
        "a swap's index twice",
        swap(makes=(NewFile(name=f"{100:020d}.index", size=8, digest=DIGEST),) * 2),
        ("RV31 it makes",),
    ),
    Case(
        "a swap with a lower .cleaned",
        swap(files=(fingerprint(f"{99:020d}.log.cleaned", 1),)),
        ("RV31 there is a .cleaned",),
    ),
    Case(
        "a swap beside a later .cleaned that goes",
        dead_swap(f"{9:020d}.log.swap", f"{10:020d}.log.cleaned"),
        ("RV25 ",),
    ),
    Case(
        "a swap of a name without number", dead_swap("x.swap", f"{10:020d}.log.cleaned"), ("RV25 'x.swap'",)
    ),
    Case(
        "an index swap that has its log",
        dead_swap(f"{9:020d}.index.swap", f"{9:020d}.log.swap"),
        ("RV25 '00000000000000000009.index.swap'",),
    ),
    Case("an index of a pending swap", dead_swap(f"{9:020d}.index", f"{9:020d}.log.swap"), ("RV25 ",)),
    Case("a removal by the fix of indexes", removal(f"{9:020d}.log.deleted", "KR201", "index"), ("RV25 ",)),
]


RIGHT = [
    Case("a swap of one byte", small_swap(1)),
    Case("P1 with the fence for 3.0", policy_with(broker_version="3.0.0")),
    Case("a group and an index", mixed()),
    Case("the second segment alone", second_alone()),
    Case("a last offset that is the first", single(last_offset=0)),
    Case("a last offset at the base of the last source", with_change(last_offset=100)),
    Case("an old message of 26 bytes", tiny(26)),
    Case("no snapshots at all", no_snapshots()),
    Case("a leftover goes where there are no snapshots", removal_without_snapshots()),
    Case("a leftover without a byte", removal_of(0)),
    Case("offsets as far apart as 32 bits hold", far_apart(0, FAR - 1)),
    Case("offsets as far apart as 32 bits hold, from higher up", far_apart(100, FAR + 99)),
    Case("an emptied batch as the last one", last_emptied_before()),
    Case("markers that wait for their horizon", waiting()),
    Case("no marker goes, and the horizon has not passed", no_marker()),
    Case("a swap at offset 0", first_swap()),
    Case("a swap of one batch", swap(batches=1)),
    Case("a swap that makes all of its indexes", swap(makes=ALL_INDEXES)),
    Case("P2 without fence for 3.0", unfenced("P2", "3.0.0")),
    Case("P1 without fence for 2.8", unfenced("P1", "2.8.2")),
    Case("P2 without fence for no version", unfenced("P2", "")),
    Case(
        "a topic of no change that is never changed",
        lambda _: good_plan(nothing(topic="__cluster_metadata", folder="__cluster_metadata-1")),
    ),
    Case("a topic of another form that is left alone", lambda _: good_plan(left_alone(topic="a b"))),
    Case("time and size 0", with_file(f"{0:020d}.index", mtime_ns=0)),
    Case("two policies", setting_with("cleanup.policy", "compact, delete")),
    Case(
        "a topic not compacted whose index is mended",
        both(replacement(), setting_with("cleanup.policy", "delete")),
    ),
    Case("a span up to the log end", with_span(end_offset=260)),
    Case(
        "a high watermark that is assumed",
        both(refigured(partition(high_watermark=-1)), policy_with(assume_high_watermark="log-end")),
    ),
    Case("the high watermark at the span's end", refigured(partition(high_watermark=200))),
    Case("segment.bytes as large as the group", setting_with("segment.bytes", "578")),
    Case("one segment larger than segment.bytes", both(single(), setting_with("segment.bytes", "1"))),
    Case("the most that 32 bits hold", large(FAR - 1)),
    Case("the largest size", with_file(f"{200:020d}.snapshot", size=2**63 - 1)),
    Case("no indexes at all", with_change(index_bytes_at_most=0)),
    Case("a group of one", single()),
    Case("a group of three", three_with()),
    Case("a merged group as large as its first source", same_size()),
    Case("a last source of which nothing stays", nothing_of_the_last()),
    Case("sources without any batch behind the last one", empty_behind()),
    Case("a chosen fix with a choice of its own", both(replacement(), policy_with(fixes=("index=all",)))),
    Case("an empty log has no snapshot to keep", emptied_log()),
    Case("a kept position at the beginning", with_last(keep_positions=(0,))),
    Case("a kept position at the last byte", with_last(keep_positions=(999,))),
    Case("a last position at the beginning", with_last(last_position=0)),
    Case("a last position at the last byte", with_last(last_position=999)),
    Case("several producers, ascending", with_last(protected=((9, 2), (10, 0)))),
    Case("as small as before", replacement(size_after=12)),
    Case("an index that grows", replacement(method="regenerate", rule="KR202", size_after=24)),
    Case("leader epochs", epochs()),
    Case("a root file that is emptied", root_change(size_after=4)),
    Case("a root file of time 0", root_file(mtime_ns=0)),
    Case("a swap of one offset", swap(last_offset=100)),
    Case("a swap whose index is empty", swap_of(size=0)),
    Case("a swap that copies what it replaces", swap(copied=(100,))),
    Case("a swap with a later .cleaned", swap(files=(fingerprint(f"{101:020d}.log.cleaned", 1),))),
    Case("a void swap goes", dead_swap(f"{9:020d}.log.swap", f"{9:020d}.log.cleaned")),
    Case("a void swap above its .cleaned goes", dead_swap(f"{9:020d}.log.swap", f"{8:020d}.index.cleaned")),
    Case("an index swap alone goes", dead_swap(f"{9:020d}.index.swap")),
    Case("a .cleaned goes", removal(f"{9:020d}.log.cleaned")),
    Case("an empty leftover goes", dead_swap("x.deleted")),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name)
def test_plan_past_one_limit_is_objected_to_in_these_words_alone(case: Case) -> None:
    found = told(case)
    assert len(found) == len(case.texts), found
    for text, words in zip(found, case.texts, strict=True):
        assert words in text


def test_objection_names_what_it_is_about() -> None:
    def where(breaker: Breaker) -> set[str]:
        return {one.where for one in review(breaker(good_plan()))}

    assert where(with_root(keeper="..")) == {"."}
    assert where(with_root(changes=(), files=())) == {"."}
    assert where(both(with_root(), policy_with(fixes=("markers",)))) == {"."}
    assert where(root_change(rule="KR404")) == {"./recovery-point-offset-checkpoint"}
    assert where(policy_with(keep="x")) == {""}
    assert where(raw(span=None)) == {FOLDER}
    assert where(with_change(mtime_ns=5)) == {f"{FOLDER}/{0:020d}"}


def test_group_in_a_folder_without_any_file_is_told_and_nothing_fails() -> None:
    found = review(good_plan(partition(files=(), log_bytes_before=0)))
    assert {one.code for one in found} == {"RV17", "RV23"}


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_plan_just_within_the_limit_passes(case: Case) -> None:
    assert told(case) == []
