"""What single changes cost and touch, by themselves."""

from __future__ import annotations

import pytest

from krepair.plan.actions.replace import Replace
from krepair.plan.actions.swap import Swap
from krepair.plan.model import CompleteSwap, KeepOriginal, NewFile, ReplaceFile
from tests.plan.plans import DIGEST, FOLDER


@pytest.mark.parametrize(
    ("name", "logs_out"),
    [
        (f"{9:020d}.log.deleted", 7),
        (f"{9:020d}.log.swap", 7),
        (f"{9:020d}.log.cleaned", 7),
        (f"{9:020d}.index.deleted", 0),
        (f"{9:020d}.timeindex", 0),
        (f"{9:020d}.snapshot", 0),
        ("leader-epoch-checkpoint", 0),
    ],
)
def test_removed_log_gives_back_its_bytes_and_a_small_file_counts_for_nothing(
    name: str, logs_out: int
) -> None:
    change = ReplaceFile(
        change_id=f"{FOLDER}/{name}",
        name=name,
        method="remove",
        rule="KR601",
        size_before=7,
        size_after=-1,
        digest_after="",
        reason="left behind",
        undo=KeepOriginal(),
    )
    space = Replace().space(change, {})
    assert (space.logs_out, space.taken_out, space.made, space.log_shrinks) == (logs_out, 7, 0, 0)


def test_swap_touches_its_own_files_and_those_of_the_segments_that_it_replaces() -> None:
    log, index, swapped = f"{100:020d}.log", f"{100:020d}.index", f"{100:020d}.index.swap"
    other = f"{150:020d}.log"
    change = CompleteSwap(
        change_id=f"{FOLDER}/{log}.swap",
        base_offset=100,
        rule="KR601",
        log_bytes=500,
        last_offset=180,
        batches=5,
        replaces=(100, 150),
        goes=(index, swapped, log, other),
        copied=(),
        makes=(NewFile(name=index, size=8, digest=DIGEST),),
        reason="pending",
        undo=KeepOriginal(),
    )
    touched = Swap().touches(change)
    assert touched.segments == (100, 150)
    assert touched.makes == (log, index)
    assert touched.removes == (f"{log}.swap", swapped, other)


@pytest.mark.parametrize(("before", "taken_out"), [(-1, 0), (0, 0), (1, 1), (12, 12)])
def test_file_made_anew_takes_out_what_was_there_and_nothing_where_there_was_none(
    before: int, taken_out: int
) -> None:
    name = f"{9:020d}.timeindex"
    change = ReplaceFile(
        change_id=f"{FOLDER}/{name}",
        name=name,
        method="regenerate",
        rule="KR201",
        size_before=before,
        size_after=24,
        digest_after=DIGEST,
        reason="missing",
        undo=KeepOriginal(),
    )
    space = Replace().space(change, {})
    assert (space.made, space.taken_out, space.logs_out) == (24, taken_out, 0)
