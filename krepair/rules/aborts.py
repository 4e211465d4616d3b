"""Decide from one scan whether a log can hold an aborted transaction, so that an empty ``.txnindex`` is right."""

from __future__ import annotations

from collections.abc import Iterable

from krepair.kernels import classes as c
from krepair.kernels.scan import SegmentSummary

_UNCLEAR = (c.EMPTIED, c.EMPTIED_PRODUCER, c.LAST_EMPTIED_NOW, c.EMPTIED_LAST, c.CONTROL_OTHER)


def may_have_aborts(summary: SegmentSummary) -> bool:
    """Return whether a segment may need an entry in its ``.txnindex``; False only if it certainly needs none.

    The scan counts the ABORT markers of transactions whose data it has read. It cannot judge the first marker of each
    producer, whose transaction may begin in an earlier segment, nor transactions whose records are all gone, unknown
    control batches, or anything after damage. If the segment has any of these, the answer is True.

    Args:
        summary: summary of a scan without a transaction index.
    """
    return (
        not summary.is_whole
        or summary.aborts_unindexed > 0
        or bool((summary.rows[:, c.P_LEAD_ABORT] == 1).any())
        or bool(summary.tallies[list(_UNCLEAR), c.T_BATCHES].any())
    )


def may_be_untrue(*, entries: bool, summaries: Iterable[SegmentSummary]) -> bool:
    """Return whether the transaction indexes of a log may be wrong, so that the log must be replayed to judge them.

    Args:
        entries: True if one of the indexes has an entry.
        summaries: summaries of the log's segments, see ``may_have_aborts``.
    """
    return entries or any(may_have_aborts(summary) for summary in summaries)
