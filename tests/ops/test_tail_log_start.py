"""Damage and the log start: records below it were deleted, so their loss costs nothing; a cut below it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import builders
from tests.ops.inline import Inline

VERBS = Inline(fixes=("tail",))
CONSENT = "KR302:t-0:5"


def damaged(root: Path, log_start: int) -> Path:
    """Offsets 0 to 9 and 10 to 19, a record each; the batch of offset 5 has a wrong checksum."""
    made = builders.LogDir(root)
    one = made.partition("t")
    for base in (0, 10):
        one.segment(*(builders.data(base + place, 1) for place in range(10)))
    log_dir = made.write(log_starts={"t-0": log_start})
    log = one.folder / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    size = len(content) // 10
    content[6 * size - 1] ^= 1
    log.write_bytes(bytes(content))
    return log_dir


@pytest.mark.parametrize(
    ("log_start", "excised", "as_broker"),
    [(0, 1, "15 records"), (5, 1, "15 records"), (6, 0, "14 records"), (20, 0, "0 records")],
)
def test_records_below_the_log_start_are_not_counted_as_lost(
    tmp_path: Path, log_start: int, excised: int, as_broker: str
) -> None:
    report = VERBS.checked(damaged(tmp_path / "logs", log_start))
    (found,) = [one for one in report.findings if one.rule == "KR302"]
    assert (found.first_offset, found.last_offset, found.records_lost) == (5, 5, excised)
    assert as_broker in found.evidence
    assert (f"(the log start is {log_start})" in found.evidence) == (log_start > 5)


@pytest.mark.parametrize(
    ("fixes", "text"),
    [
        (("tail=broker",), "the next start deletes every segment here and begins at 12"),
        (("checkpoints", "tail=broker"), "--fix checkpoints removes its line, and deleted records are back"),
        (("tail",), ""),
    ],
)
def test_a_cut_below_the_log_start_is_told(tmp_path: Path, fixes: tuple[str, ...], text: str) -> None:
    plan = VERBS.planned(damaged(tmp_path / "logs", 12), fixes=fixes, accepted_losses=(CONSENT,))
    (partition,) = plan.partitions
    told = " ".join(partition.notes)
    assert ("the log start 12 lies above the new log end 5" in told) == bool(text)
    assert text in told
