"""The closed list of reasons why marker-only compaction keeps, empties or drops a batch.

Key compaction removes records first, then this list decides on the remaining batches. The code of a reason is printed
in plans, and is never reused for another reason. Plans list reasons in the order of the members. The scan kernel uses
its own numbers (``krepair.kernels.classes``); ``REASON_OF_CLASS`` in ``markers`` maps them to reasons.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

LAG: Final = "min.compaction.lag.ms"
"""Limit of the cleanable range if the minimum compaction lag determines it."""


class Verdict(StrEnum):
    """Fate of a batch."""

    KEEP = "keep"
    EMPTY = "empty"
    DROP = "drop"


class Reason(StrEnum):
    """Code of a reason; ``REASONS`` has its verdict and text."""

    RECORDS = "K01"
    MARKER_DATA_REMAINS = "K02"
    MARKER_HORIZON = "K03"
    MARKER_STAMP = "K04"
    MARKER_EPOCH = "K05"
    CONTROL_OTHER = "K06"
    EMPTIED_PRODUCER = "K07"
    EMPTIED_LAST = "K08"
    MARKER_HELD = "K09"
    LAST_EMPTIED_NOW = "E01"
    EMPTIED = "D01"
    EMPTIED_MARKER = "D02"
    MARKER = "D03"
    MARKER_STAMP_PAST = "D04"


class ReasonText(NamedTuple):
    """One row of the table of reasons.

    Attributes:
        verdict: keep, empty or drop.
        text: one line for a reviewer.
        source: Kafka class, issue or KIP with the same rule; ``design`` or a page of docs/ if krepair decides
            differently.
    """

    verdict: Verdict
    text: str
    source: str


REASONS: dict[Reason, ReasonText] = {
    Reason.RECORDS: ReasonText(
        Verdict.KEEP, "batch with remaining records; no rule here removes records", "design"
    ),
    Reason.MARKER_DATA_REMAINS: ReasonText(
        Verdict.KEEP,
        "marker of a transaction that still has a batch in the log",
        "CleanedTransactionMetadata.onControlBatchRead (2.2.1), KAFKA-8351",
    ),
    Reason.MARKER_HORIZON: ReasonText(
        Verdict.KEEP,
        "marker whose transaction has no batch left, in a segment newer than the delete horizon",
        "Cleaner.cleanSegments (2.2.1)",
    ),
    Reason.MARKER_STAMP: ReasonText(
        Verdict.KEEP,
        "marker whose transaction has no batch left and whose batch delete horizon has not passed",
        "KIP-534",
    ),
    Reason.MARKER_EPOCH: ReasonText(
        Verdict.KEEP,
        "marker that carries the current epoch of an active producer without data in the log: a broker needs it to "
        "fence older epochs",
        "design; differs from Kafka, which empties it (docs/rules.md)",
    ),
    Reason.CONTROL_OTHER: ReasonText(
        Verdict.KEEP, "control batch that is neither commit nor abort", "CleanedTransactionMetadata (2.2.1)"
    ),
    Reason.EMPTIED_PRODUCER: ReasonText(
        Verdict.KEEP,
        "retained empty batch with the last sequence of an active producer",
        "Cleaner.cleanInto, isBatchLastRecordOfProducer (2.2.1), KAFKA-8335",
    ),
    Reason.EMPTIED_LAST: ReasonText(
        Verdict.KEEP,
        "retained empty batch at the end of the cleanable range or of its new segment",
        "KAFKA-17076",
    ),
    Reason.MARKER_HELD: ReasonText(
        Verdict.KEEP,
        "marker whose transaction has no data here, kept because another replica has, or may have, a batch of that "
        "transaction",
        "docs/replicas.md",
    ),
    Reason.LAST_EMPTIED_NOW: ReasonText(
        Verdict.EMPTY,
        "last batch of the cleanable range or of its new segment: replaced by a retained empty batch, so that the "
        "end offset survives",
        "KAFKA-17076",
    ),
    Reason.EMPTIED: ReasonText(
        Verdict.DROP, "retained empty batch that no active producer needs", "KAFKA-8335, commit 0bf7fa85de1"
    ),
    Reason.EMPTIED_MARKER: ReasonText(
        Verdict.DROP,
        "empty control batch: it restores no producer state, so no broker needs it",
        "ProducerAppendInfo.append (2.2.1)",
    ),
    Reason.MARKER: ReasonText(
        Verdict.DROP,
        "marker of a transaction that has no batch left, past the delete horizon",
        "Cleaner.shouldDiscardBatch (2.2.1)",
    ),
    Reason.MARKER_STAMP_PAST: ReasonText(
        Verdict.DROP,
        "marker whose transaction has no batch left and whose batch delete horizon has passed",
        "KIP-534, KAFKA-8522",
    ),
}


_CODES: Final = frozenset(Reason)


def reason_text(code: str) -> ReasonText | None:
    """Look up the row of a code; None if no reason has it."""
    return REASONS[Reason(code)] if code in _CODES else None
