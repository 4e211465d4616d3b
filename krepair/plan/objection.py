"""The table of objections that the review of a plan can raise."""

from __future__ import annotations

from typing import Final, NamedTuple


class Objection(NamedTuple):
    """One reason why a plan must not be applied.

    Attributes:
        code: ``RVnn``, see ``OBJECTIONS``.
        where: change id or partition folder; empty for the plan as a whole.
        text: what is there and what was expected.
    """

    code: str
    where: str
    text: str


OBJECTIONS: Final[dict[str, str]] = {
    "RV01": "the plan has a format version that this krepair does not read",
    "RV02": "the digest or the plan id does not fit the values",
    "RV03": "the log directory is not an absolute, plain path on a named host",
    "RV04": "this order of commit, with or without the fence, was never proven",
    "RV05": "the originals would not be kept as the policy says",
    "RV06": "a sum of the plan is not the sum of its partitions",
    "RV07": "a risk that must be told is missing",
    "RV08": "a partition or a change is there twice, or out of order",
    "RV09": "a name is not a plain file name, or not one of this partition",
    "RV10": "the status does not fit what the partition holds",
    "RV11": "a fingerprint is malformed or out of range",
    "RV12": "a figure of a partition or change does not follow from its sizes",
    "RV13": "the topic is one that is never changed",
    "RV14": "the topic or the chosen fixes do not allow a rewrite",
    "RV15": "groups overlap or are not ascending",
    "RV16": "a change lies outside of the span, or the span ends past the high watermark",
    "RV17": "a group is not a run of neighbouring segments of this partition",
    "RV18": "the active segment would be changed",
    "RV19": "tallies do not add up, or a reason is not known",
    "RV20": "kept bytes, batches, records or markers do not follow from the tallies",
    "RV21": "the new segment would have no batch, or its last offset is wrong",
    "RV22": "the new segment would be larger than segment.bytes, or its offsets too far apart",
    "RV23": "a producer snapshot that must stay would be removed",
    "RV24": "a source is not as its fingerprint says",
    "RV25": "a file may not be replaced or removed in this way",
    "RV26": "decisions about a source contradict each other",
    "RV27": "a change changes nothing",
    "RV28": "a file in the root may not be changed in this way",
    "RV29": "data would be removed without the consent that names it",
    "RV30": "a log may not be cut, or a segment not be set aside, in this way; or two changes touch one file",
    "RV31": "no broker would complete the swap in this way",
    "RV32": "records would go by key in a way that key compaction never takes them",
    "RV33": "markers or tombstones would go without the evidence or consent that allows it",
    "RV34": "a setting that the work of the plan needs is not a number",
}
"""Code -> what is wrong."""


def is_plain_name(name: str) -> bool:
    """Whether a name is a file name in one folder: no separators, not ``.`` or ``..``, no unprintable characters."""
    return (
        bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name and len(name) <= 1024
    )
