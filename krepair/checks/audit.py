"""Independent verification of a rewrite, by a kernel that shares no code with those that decide and gather.

``audit_window`` runs while a source window is still in the CPU cache. It proves that every byte belongs to a batch that
was kept, or that marker-only compaction may drop. ``krepair.rewrite.segments.verify`` proves the rest on the new files.
"""

from __future__ import annotations

import numpy as np

from krepair.formats.arrays import Bools, Int32s, Uint8s
from krepair.kernels import check_kept as k

_WRONG = {
    k.FIRST_NOT_AT_0: "the first batch starts at place {place}, not 0",
    k.OUTSIDE: "a batch is claimed outside of the window",
    k.NO_BATCH: "no batch of the claimed size starts at place {place}",
    k.OLD_MESSAGE_GOES: "the message of an old format at place {place} would go",
    k.RECORDS_GO: "the batch at place {place} has records and would go",
    k.OTHER_BYTES: "the kept batch at place {place} was gathered wrongly",
    k.OTHER_COUNT: "{copied} bytes were gathered, {place} stay",
}


def audit_window(window: Uint8s, starts: Int32s, end: int, kept: Bools) -> str:
    """Check the claim that batches fill a window without gaps, and that only batches without records go.

    The starts are proven: the first is 0, and the length field of each batch leads to the next one.

    Args:
        window: uint8[W], bytes of the window.
        starts: int32[N], N > 0, start of each batch in the window.
        end: place after the last batch; more than W if a single batch is larger than the window.
        kept: bool[N], True for each batch that stays.

    Returns:
        The problem in words, or an empty text.
    """
    if end > len(window):
        if len(starts) > 1 or starts[0] != 0:
            return _WRONG[k.OUTSIDE]
        return "" if kept[0] else "a batch larger than the window goes"
    place = np.zeros(1, np.int64)
    problem = k.check_batches(window, starts, end, kept, place)
    return _WRONG[problem].format(place=place[0]) if problem else ""


def audit_gathered(window: Uint8s, starts: Int32s, end: int, kept: Bools, copied: Uint8s) -> str:
    """Check that ``copied`` holds the kept batches of an audited window, without gaps.

    Only each batch's CRC and the bytes that the CRC does not cover are compared here; the covered bytes are checked by
    that CRC when the new log is read.

    Args:
        window: uint8[W], bytes of the window.
        starts: int32[N], start of each batch in the window.
        end: place after the last batch, at most W.
        kept: bool[N], True for each batch that stays.
        copied: uint8[M], gathered bytes of the kept batches.

    Returns:
        The problem in words, or an empty text.
    """
    place = np.zeros(1, np.int64)
    problem = k.check_gathered(window, starts, end, kept, copied, place)
    return _WRONG[problem].format(place=place[0], copied=len(copied)) if problem else ""
