"""The table of objections that the review of a plan can raise."""

from __future__ import annotations

from typing import Final, NamedTuple


class Objection(NamedTuple):
    """One reason why a plan must not be applied.

    Attributes:
        code: ``RVnn``; ``OBJECTIONS`` explains it.
        where: change id or partition folder; empty for the plan as a whole.
        text: one line: what the plan says, and what was expected.
    """

    code: str
    where: str
    text: str


OBJECTIONS: Final[dict[str, str]] = {
    "RV04": "this order of commit, with or without the recovery guard, was never proven",
    "RV05": "the originals would not be kept as the policy says",
    "RV09": "a name is not a plain file name, or not one of this partition",
    "RV13": "the topic is one that is never changed",
    "RV14": "the topic is not compacted by its own settings",
    "RV16": "a change lies outside of the cleanable range, or the range ends past the high watermark",
    "RV17": "a group is not a run of neighbouring segments of this partition",
    "RV18": "the active segment would be changed",
    "RV21": "the new segment would have no batch, or its size or last offset is wrong",
    "RV23": "other producer snapshots would go than those of merged segments, or none would be left",
    "RV24": "the time of a new segment is not that of its last source",
    "RV25": "a file may not be replaced or removed in this way",
    "RV28": "a file in the root may not be changed in this way",
    "RV29": "data would be removed without the consent that names it",
    "RV30": "a log may not be cut, or a segment not be set aside, in this way; or two changes touch one file",
    "RV31": "no broker would complete the swap in this way",
    "RV33": "markers or tombstones would go without the evidence or consent that allows it",
}
"""Code -> the fault that it names."""


def is_plain_name(name: str) -> bool:
    """Return whether a name is a file name in one folder: not ``.`` or ``..``, without ``/`` and NUL, not too long."""
    return (
        bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name and len(name) <= 1024
    )
