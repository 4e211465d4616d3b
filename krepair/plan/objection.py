"""The table of objections that the review of a plan can raise."""

from __future__ import annotations

from typing import Final, NamedTuple


class Objection(NamedTuple):
    """One thing that speaks against a plan.

    Attributes:
        code: ``RVnn``, see ``OBJECTIONS``.
        where: change id or partition folder; empty for the plan as a whole.
        text: what is there and what was expected.
    """

    code: str
    where: str
    text: str


OBJECTIONS: Final[dict[str, str]] = {
    "RV01": "plan format that this krepair does not read",
    "RV02": "digest or plan id that does not fit the values",
    "RV03": "log directory that is not an absolute, plain path on a named host",
    "RV04": "order of commit and fence that was not proven",
    "RV05": "originals would not be kept as the policy says",
    "RV06": "sum of the plan that its partitions do not give",
    "RV07": "risk that must be told is missing",
    "RV08": "partition or change that is there twice, or out of order",
    "RV09": "name that is no plain name, or not the name of this partition",
    "RV10": "status that does not fit what the partition holds",
    "RV11": "fingerprint that cannot be",
    "RV12": "figure of a partition or change that does not follow from its sizes",
    "RV13": "topic that is never changed",
    "RV14": "rewrite that topic or fixes do not allow",
    "RV15": "groups not ascending and disjoint",
    "RV16": "change outside of the span, or span past the high watermark",
    "RV17": "group that is not a run of neighbouring segments of this partition",
    "RV18": "active segment touched",
    "RV19": "tallies that do not add up, or a reason that is not known",
    "RV20": "kept bytes, batches, records or markers that do not follow from the tallies",
    "RV21": "new segment without a batch, or with a last offset that cannot be",
    "RV22": "new segment larger than segment.bytes, or with offsets too far apart",
    "RV23": "producer snapshot that must stay would go",
    "RV24": "source that is not as its fingerprint says",
    "RV25": "replaced file that cannot be",
    "RV26": "decisions of a source that contradict each other",
    "RV27": "change that changes nothing",
    "RV28": "change of a file in the root that cannot be",
    "RV29": "data that would go without the consent that names it",
    "RV30": "cut of a log, or segment set aside, that cannot be; or a file that two changes touch",
    "RV31": "swap that no broker would complete so",
}
"""Code to what it objects to."""


def is_plain_name(name: str) -> bool:
    """Whether a name stays in its folder: no separators, no dots alone, nothing unprintable to the system."""
    return (
        bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name and len(name) <= 1024
    )
