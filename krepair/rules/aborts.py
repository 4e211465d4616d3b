"""Whether a log can hold an aborted transaction, as far as one scan tells."""

from __future__ import annotations

from collections.abc import Iterable

from krepair.kernels import classes as c
from krepair.kernels.scan import SegmentSummary

_UNCLEAR = (c.EMPTIED, c.EMPTIED_PRODUCER, c.LAST_EMPTIED_NOW, c.EMPTIED_LAST, c.CONTROL_OTHER)


def may_have_aborts(summary: SegmentSummary) -> bool:
    """Whether a replay of the log could find an aborted transaction whose marker is in this segment.

    False only where there is none for certain: then the segment needs no entry in a ``.txnindex``. The scan counts the
    abort markers of records that it has read, but for the first marker of each producer, whose transaction may begin in
    an earlier segment. It does not tell of transactions whose records are all gone, of control batches that it does not
    know, or of what lies behind damage; so where there is any of these, the answer is True.

    Args:
        summary: of a scan without a transaction index.
    """
    return (
        not summary.is_whole
        or summary.aborts_unindexed > 0
        or bool((summary.rows[:, c.P_LEAD_ABORT] == 1).any())
        or bool(summary.tallies[list(_UNCLEAR), c.T_BATCHES].any())
    )


def may_be_untrue(*, entries: bool, summaries: Iterable[SegmentSummary]) -> bool:
    """Whether a replay could find a ``.txnindex`` of a log that is not true.

    Args:
        entries: whether one of them has an entry.
        summaries: of its segments, see ``may_have_aborts``.
    """
    return entries or any(may_have_aborts(summary) for summary in summaries)
