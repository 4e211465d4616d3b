"""The lists of steps, against the orders that were proven."""

from __future__ import annotations

from krepair.commit.journal import FileState, Intent, Order
from krepair.commit.steps import (
    Becomes,
    Keep,
    MoveOut,
    Names,
    Put,
    Remove,
    Restore,
    Step,
    SyncDir,
    Take,
    backwards,
    commit_steps,
    extensions_to_undo,
    files_back,
    forget_files,
    keep_files,
    keep_steps,
    replace_steps,
    segment_originals,
    staged_extensions,
    swap_files,
    synced,
    waiting_steps,
)

NAMES = Names("krepair~1")
ALL = (".log", ".index", ".timeindex", ".txnindex")


def n(base: int) -> str:
    return f"{base:020d}"


def state(name: str) -> FileState:
    return FileState(name=name, size=1, mtime_ns=1)


def group(order: Order, staged: tuple[str, ...] = ALL, snapshots: tuple[str, ...] = ()) -> Intent:
    originals = [n(base) + e for base in (100, 200) for e in ALL[: 4 if base == 100 else 3]]
    return Intent(
        change_id="t-0/100",
        executor="segments",
        order=order,
        originals=tuple(state(name) for name in [*originals, *snapshots]),
        made=tuple(state(n(100) + e) for e in staged),
    )


def shown(steps: list[Step]) -> list[str]:
    """Without syncs; A and B for the segments."""
    out = []
    for step in steps:
        match step:
            case Put(sources, target) | MoveOut(sources, target):
                out += [f"{source} -> {target}" for source in sources]
            case Restore(kept, name):
                out.append(f"{kept} = {name}")
            case Keep(name, kept):
                out.append(f"{name} = {kept}")
            case Take(name):
                out.append(f"- {name}")
    return [line.replace("krepair~1/", "").replace(n(100), "A").replace(n(200), "B") for line in out]


OLD_OUT = ["- B.log", "- B.index", "- B.timeindex", "- A.log", "- A.index", "- A.timeindex", "- A.txnindex"]
OLD_BACK = [
    "keep/A.txnindex = A.txnindex",
    "keep/A.timeindex = A.timeindex",
    "keep/A.index = A.index",
    "keep/A.log = A.log",
    "keep/B.timeindex = B.timeindex",
    "keep/B.index = B.index",
    "keep/B.log = B.log",
]


def test_rename_makes_each_folder_durable_from_which_or_to_which_the_name_goes() -> None:
    log, stage = n(100) + ".log", NAMES.stage()
    put = Put((f"{stage}/{log}",), f"{log}.swap")
    assert synced([put]) == [put, SyncDir(stage), SyncDir("")]
    assert synced([Put((f"{log}.swap",), log)]) == [Put((f"{log}.swap",), log), SyncDir("")]


def test_index_swaps_of_a_broker_are_gone_durably_before_a_segment_goes() -> None:
    takes = [Take("A.index.swap"), Take("B.log"), Take("B.index")]
    assert synced(takes) == [takes[0], SyncDir(""), *takes[1:], SyncDir("")]


def applied(one: Intent) -> list[Step]:
    """All steps of an apply behind the keeping of originals."""
    made = staged_extensions(one)
    return [
        *commit_steps(one, NAMES, one.order, made),
        *waiting_steps(one, NAMES, one.order, made),
        *replace_steps(one, NAMES, one.order, made),
    ]


def undone(one: Intent) -> list[Step]:
    """All steps of an undo: a broker may have added indexes, so it names all of them."""
    suffixes = extensions_to_undo(one.order)
    steps = [
        *commit_steps(one, NAMES, one.order, suffixes),
        *replace_steps(one, NAMES, one.order, suffixes),
    ]
    return backwards(steps, one, NAMES)


def test_p1_commits_with_the_log_swap_and_takes_its_name_last() -> None:
    """An index waits as ``.swap`` only where the other order was begun."""
    assert shown(applied(group("P1"))) == [
        "stage/A.log -> A.log.swap",
        *OLD_OUT,
        "stage/A.index -> A.index",
        "A.index.swap -> A.index",
        "stage/A.timeindex -> A.timeindex",
        "A.timeindex.swap -> A.timeindex",
        "stage/A.txnindex -> A.txnindex",
        "A.txnindex.swap -> A.txnindex",
        "A.log.swap -> A.log",
    ]


def test_p2_commits_with_the_last_cleaned_that_there_is() -> None:
    assert shown(applied(group("P2", ALL[:3]))) == [
        "stage/A.log -> A.log.cleaned",
        "stage/A.index -> A.index.cleaned",
        "stage/A.timeindex -> A.timeindex.cleaned",
        "A.log.cleaned -> A.log.swap",
        "A.index.cleaned -> A.index.swap",
        "A.timeindex.cleaned -> A.timeindex.swap",
        "stage/A.index -> A.index.swap",
        "stage/A.timeindex -> A.timeindex.swap",
        *OLD_OUT,
        "A.log.swap -> A.log",
        "A.index.swap -> A.index",
        "A.timeindex.swap -> A.timeindex",
    ]


def test_u1_takes_the_log_swap_out_last() -> None:
    assert shown(undone(group("P1"))) == [
        "A.log -> A.log.swap",
        "A.index -> out/A.index",
        "A.index.swap -> out/A.index",
        "A.timeindex -> out/A.timeindex",
        "A.timeindex.swap -> out/A.timeindex",
        "A.txnindex -> out/A.txnindex",
        "A.txnindex.swap -> out/A.txnindex",
        *OLD_BACK,
        "A.log.swap -> out/A.log",
    ]


def test_u2_is_p2_backwards() -> None:
    assert shown(undone(group("P2"))) == [
        "A.txnindex -> A.txnindex.swap",
        "A.timeindex -> A.timeindex.swap",
        "A.index -> A.index.swap",
        "A.log -> A.log.swap",
        *OLD_BACK,
        "A.txnindex.swap -> A.txnindex.cleaned",
        "A.timeindex.swap -> A.timeindex.cleaned",
        "A.index.swap -> A.index.cleaned",
        "A.log.swap -> A.log.cleaned",
        "A.txnindex.cleaned -> out/A.txnindex",
        "A.timeindex.cleaned -> out/A.timeindex",
        "A.index.cleaned -> out/A.index",
        "A.log.cleaned -> out/A.log",
    ]


def test_snapshots_go_last_and_come_back_first() -> None:
    snapshot = n(200) + ".snapshot"
    assert shown(applied(group("P1", snapshots=(snapshot,))))[-1] == "- B.snapshot"
    back = shown(undone(group("P1", snapshots=(snapshot,))))
    assert back[0] == "keep/B.snapshot = B.snapshot"


def test_every_original_is_kept_before_anything_is_renamed() -> None:
    one = group("P1", snapshots=(n(200) + ".snapshot",))
    originals = [*segment_originals(one), *one.snapshots]
    kept = [step.name for step in keep_steps(one, NAMES, originals) if isinstance(step, Keep)]
    gone = [step.name for step in applied(one) if isinstance(step, Take)]
    assert sorted(kept) == sorted(gone)


def test_both_folders_are_synced_right_after_each_rename() -> None:
    for order in ("P1", "P2"):
        one = group(order)
        for steps in (synced(applied(one)), synced(undone(one))):
            for place, step in enumerate(steps):
                if isinstance(step, Put | MoveOut):
                    folders = {p.rpartition("/")[0] for p in (*step.sources, step.target)}
                    after = steps[place + 1 : place + 1 + len(folders)]
                    assert folders == {s.path for s in after if isinstance(s, SyncDir)}
                if isinstance(step, Take | Restore):
                    following = next(s for s in steps[place:] if not isinstance(s, Take | Restore))
                    assert following == SyncDir("")


def test_roll_back_is_the_apply_before_its_commit_from_the_end() -> None:
    one = group("P2", ALL[:2])
    steps = commit_steps(one, NAMES, "P2", staged_extensions(one))
    assert shown(backwards(steps, one, NAMES, committed=False)) == [
        "A.index.swap -> A.index.cleaned",
        "A.log.swap -> A.log.cleaned",
        "A.index.cleaned -> stage/A.index",
        "A.log.cleaned -> stage/A.log",
    ]


def test_staged_extensions_come_in_the_order_of_the_renames() -> None:
    assert staged_extensions(group("P2", (".timeindex", ".log"))) == (".log", ".timeindex")


def file_steps(steps: list[Step]) -> list[str]:
    """Syncs included; in few letters."""
    out = []
    for step in steps:
        match step:
            case Keep(name=name) | Take(name) | Restore(name=name) | Put(target=name) | MoveOut((name,)):
                out.append(f"{type(step).__name__} {name}")
            case Remove():
                out.append(f"- {step.path}")
            case SyncDir():
                out.append(f"sync {step.path}".strip())
    return [line.replace("krepair~1/", "") for line in out]


def test_files_that_go_follow_the_first_one_and_come_back_before_it() -> None:
    files = [Becomes(name, state(name), None) for name in ("log", "index", "times")]
    assert file_steps(keep_files(files, NAMES)) == ["Keep log", "Keep index", "Keep times"]
    assert file_steps(swap_files(files, NAMES)) == ["Take log", "sync", "Take index", "Take times"]
    assert file_steps(files_back(files, NAMES)) == [
        "Restore times",
        "Restore index",
        "sync",
        "Restore log",
    ]


def test_files_that_come_are_there_before_the_first_one_and_leave_after_it() -> None:
    files = [Becomes(name, None, state(name)) for name in ("log", "index", "times")]
    assert keep_files(files, NAMES) == []
    assert file_steps(swap_files(files, NAMES)) == ["Put times", "Put index", "Put log"]
    assert file_steps(files_back(files, NAMES)) == ["MoveOut log", "sync", "MoveOut index", "MoveOut times"]


def test_what_is_kept_of_files_that_are_back_goes_durably_and_what_was_taken_out_goes_last() -> None:
    assert file_steps(forget_files(["a", "b"], NAMES)) == [
        "- keep/a",
        "- keep/b",
        "sync keep",
        "- out/a",
        "- out/b",
    ]
