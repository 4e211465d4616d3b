"""The review of a replica that is set aside as a whole: only with its fix, its proof, and all that belongs to it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT
from krepair.plan.actions.aside import Aside
from krepair.plan.build import build_plan
from krepair.plan.model import ChangedLine, ChangeLines, KeepOriginal, Plan, ReplaceFile, RootPlan, SetAside
from krepair.plan.review import review
from tests.plan.plans import COMMIT, FACTS, check_begins, fingerprint, policy, removed_file
from tests.plan.test_review_loss import CONSENT, FILES, FOLDER, MTIME_NS, aside, cut, partition_with
from tests.rules.test_refetch import GOOD, NOW

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
WITH_EPOCHS = (*FILES, fingerprint(LEADER_EPOCH_CHECKPOINT, 20, MTIME_NS))


def whole(base: int, **fields: Any) -> SetAside:
    return aside(base, **({"rule": "KR670", "consent": "", "records": -1} | fields))


def gone(name: str = LEADER_EPOCH_CHECKPOINT, size: int = 20, **fields: Any) -> ReplaceFile:
    return removed_file(name, folder=FOLDER, **({"rule": "KR670", "size_before": size} | fields))


def lines(*changed: ChangedLine) -> RootPlan:
    """Lines of the recovery points go."""
    change = ChangeLines(
        change_id=f"./{RECOVERY_POINTS}",
        name=RECOVERY_POINTS,
        rule="KR670",
        lines=changed or (ChangedLine("t", 0, 200, None),),
        size_before=20,
        reason="the log of which it speaks is fetched anew",
        undo=KeepOriginal(),
    )
    return RootPlan(keeper=FOLDER, files=(fingerprint(RECOVERY_POINTS, 20),), changes=(change,))


EMPTIED = (whole(200), whole(100), whole(0), gone())


def plan(*changes: Any, root: RootPlan | None = None, given: Any = None, **fields: Any) -> Plan:
    values = {"proof": GOOD, "files": WITH_EPOCHS} | fields
    chosen = {"fixes": ("refetch",), "settings": {}, "now_ms": NOW} | (given or {})
    return build_plan(FACTS, policy(**chosen), [partition_with(*changes, **values)], COMMIT, root=root)


def told(made: Plan) -> list[str]:
    return [f"{one.code} {one.where}: {one.text}" for one in review(made)]


def test_whole_replica_with_a_proof_passes_and_so_do_its_lines() -> None:
    assert told(plan(*EMPTIED)) == []
    assert told(plan(*EMPTIED, root=lines())) == []
    assert told(plan(*EMPTIED, given={"fixes": ("checkpoints", "refetch")}, root=lines())) == []


NOT_CHOSEN = "a whole replica is set aside, but refetch is not among the fixes"
NO_PROOF = "RV29 t-0: the replica must not be emptied: there is no proof"
NOT_ALL = "RV30 t-0: not all segments are set aside, the highest first"
STAYS = f"RV30 t-0: {LEADER_EPOCH_CHECKPOINT} of an emptied replica would stay"
BROKEN: list[tuple[str, Plan, list[str]]] = [
    (
        "another fix",
        plan(*EMPTIED, given={"fixes": ("tail",)}),
        [
            f"RV29 t-0: {NOT_CHOSEN}",
            f"RV25 t-0/{LEADER_EPOCH_CHECKPOINT}: 'KR670' is not a rule that the chosen fixes mend",
        ],
    ),
    ("no proof", plan(*EMPTIED, proof=replace(GOOD, isr=(1, 2, 3))), ["RV29 t-0: the replica must not be"]),
    (
        "two reasons against it",
        plan(*EMPTIED, proof=replace(GOOD, isr=(1, 2, 3), moving=True)),
        ["RV29 t-0: the replica must not be", "RV29 t-0: the replica must not be emptied: a reassignment"],
    ),
    ("one segment stays", plan(whole(200), whole(100), gone()), [NOT_ALL]),
    ("the lowest first", plan(whole(0), whole(100), whole(200), gone()), [NOT_ALL]),
    ("its epochs stay", plan(whole(200), whole(100), whole(0)), [STAYS]),
    (
        "another file goes instead of its epochs",
        plan(
            whole(200),
            whole(100),
            replace(whole(0), names=whole(0).names[:1], bytes=1000),
            gone(f"{0:020d}.index", 8),
        ),
        [STAYS, "RV30 t-0/00000000000000000000: the files of segment 0"],
    ),
    (
        "its epochs are made again",
        plan(
            *EMPTIED[:3],
            gone(method="regenerate", rule="KR401", size_after=4, digest_after="0" * 32),
            given={"fixes": ("epochs", "refetch")},
        ),
        [STAYS],
    ),
    (
        "a segment with another id",
        plan(whole(200, change_id="x"), *EMPTIED[1:]),
        ["RV30 x: the files of segment 200"],
    ),
    (
        "a segment of other bytes",
        plan(whole(200, bytes=7), *EMPTIED[1:]),
        [f"RV30 {FOLDER}/{200:020d}: bytes are not those of its files"],
    ),
    (
        "one of its segments goes for another rule",
        plan(whole(200), aside(100), whole(0), gone(), given={"accepted_losses": (CONSENT,)}),
        [f"RV29 t-0: {NOT_CHOSEN}"],
    ),
    (
        "a segment behind a cut goes as one of a replica",
        plan(
            aside(200),
            aside(100, rule="KR670"),
            cut(),
            given={"fixes": ("refetch", "tail"), "accepted_losses": (CONSENT,)},
        ),
        [f"RV29 t-0: {NOT_CHOSEN}", NOT_ALL, STAYS],
    ),
    (
        "the epochs go with segments behind a cut",
        plan(
            aside(200),
            aside(100),
            cut(),
            gone(),
            given={"fixes": ("refetch", "tail"), "accepted_losses": (CONSENT,)},
        ),
        [
            f"RV25 t-0/{LEADER_EPOCH_CHECKPOINT}: {LEADER_EPOCH_CHECKPOINT!r} is not a file that refetch removes"
        ],
    ),
    (
        "a line of a log that is cut",
        plan(
            aside(200),
            aside(100),
            cut(),
            given={"fixes": ("refetch", "tail"), "accepted_losses": (CONSENT,)},
            root=lines(),
        ),
        [f"RV28 ./{RECOVERY_POINTS}: t-0: its line would change, but the partition is not set aside"],
    ),
    (
        "the line of another partition",
        plan(*EMPTIED, root=lines(ChangedLine("t", 0, 200, None), ChangedLine("t", 1, 9, None))),
        [f"RV28 ./{RECOVERY_POINTS}: t-1: its line would change, but the partition is not set aside"],
    ),
    (
        "a line that stays",
        plan(*EMPTIED, root=lines(ChangedLine("t", 0, 200, 100))),
        [f"RV28 ./{RECOVERY_POINTS}: t-0: 200 becomes 100"],
    ),
    (
        "epochs alone",
        plan(gone()),
        [
            f"RV25 t-0/{LEADER_EPOCH_CHECKPOINT}: {LEADER_EPOCH_CHECKPOINT!r} is not a file that refetch removes"
        ],
    ),
]


@pytest.mark.parametrize(("made", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_replica_that_goes_in_another_way_is_objected_to(made: Plan, words: list[str]) -> None:
    check_begins(told(made), words)


def test_replica_without_any_proof_is_objected_to() -> None:
    bare = build_plan(
        FACTS,
        policy(fixes=("refetch",), settings={}, now_ms=NOW),
        [partition_with(*EMPTIED, files=WITH_EPOCHS)],
        COMMIT,
    )
    assert told(bare) == [NO_PROOF]


def test_indexes_and_snapshots_without_a_segment_go_with_the_replica() -> None:
    extra = [fingerprint(f"{50:020d}{suffix}", 8, MTIME_NS) for suffix in (".snapshot", ".timeindex")]
    files = tuple(sorted([*WITH_EPOCHS, *extra], key=lambda file: file.name))
    rest = [gone(file.name, 8) for file in extra]
    assert told(plan(*EMPTIED[:3], *rest, gone(), files=files)) == []


def test_segment_that_goes_is_shown_with_its_records_if_they_are_counted() -> None:
    (known,) = Aside().rows(aside(100, records=1234))
    assert known == (f"t-0/{100:020d}", "KR302", "set aside", "all", "860", "-", "1,234", CONSENT)
    (none,) = Aside().rows(aside(100, records=0))
    assert none[6] == "0"
    (unknown,) = Aside().rows(whole(100))
    assert unknown == (f"t-0/{100:020d}", "KR670", "set aside", "all", "860", "-", "all", "")
