"""The table of reasons: plans contain the codes, so none may ever change its meaning."""

from __future__ import annotations

import pytest

from krepair.kernels import classes as c
from krepair.rules.markers import reason_of, stays
from krepair.rules.reasons import REASONS, Reason, Verdict

VERDICTS = {
    "K01": "keep",
    "K02": "keep",
    "K03": "keep",
    "K04": "keep",
    "K05": "keep",
    "K06": "keep",
    "K07": "keep",
    "K08": "keep",
    "K09": "keep",
    "E01": "empty",
    "D01": "drop",
    "D02": "drop",
    "D03": "drop",
    "D04": "drop",
}
BY_NAME = {
    "RECORDS": "K01",
    "MARKER_DATA_REMAINS": "K02",
    "MARKER_HORIZON": "K03",
    "MARKER_STAMP": "K04",
    "MARKER_EPOCH": "K05",
    "CONTROL_OTHER": "K06",
    "EMPTIED_PRODUCER": "K07",
    "EMPTIED_LAST": "K08",
    "MARKER_HELD": "K09",
    "LAST_EMPTIED_NOW": "E01",
    "EMPTIED": "D01",
    "EMPTIED_MARKER": "D02",
    "MARKER": "D03",
    "MARKER_STAMP_PAST": "D04",
}


def test_codes_and_verdicts_are_those_that_earlier_plans_were_written_with() -> None:
    assert {reason.name: reason.value for reason in Reason} == BY_NAME
    assert {reason.value: text.verdict.value for reason, text in REASONS.items()} == VERDICTS


def test_reasons_stand_in_the_order_of_their_table_and_each_has_words_and_a_source() -> None:
    assert [reason.value for reason in Reason] == list(VERDICTS) == [reason.value for reason in REASONS]
    assert all(text.text and text.source for text in REASONS.values())


@pytest.mark.parametrize("batch_class", range(c.CLASS_COUNT))
def test_a_batch_stays_by_the_verdict_of_its_reason(batch_class: int) -> None:
    for passed in (False, True):
        reason = reason_of(batch_class, drop_unstamped=passed)
        kept = REASONS[reason].verdict is not Verdict.DROP
        assert stays(batch_class, drop_unstamped=passed) == kept
    assert stays(c.LAST_EMPTIED_NOW, drop_unstamped=True)


@pytest.mark.parametrize("batch_class", range(c.CLASS_COUNT))
def test_where_other_replicas_are_not_known_every_marker_stays_and_only_emptied_batches_go(
    batch_class: int,
) -> None:
    reason = reason_of(batch_class, drop_unstamped=False, keeps_all=True)
    assert stays(batch_class, drop_unstamped=False, keeps_all=True) == (
        batch_class not in (c.EMPTIED, c.EMPTIED_MARKER)
    )
    if batch_class in (c.MARKER_UNSTAMPED, c.MARKER_STAMP_PAST):
        assert reason is Reason.MARKER_HELD


def test_only_an_unstamped_marker_waits_for_the_horizon() -> None:
    waits = [
        number
        for number in range(c.CLASS_COUNT)
        if stays(number, drop_unstamped=False) != stays(number, drop_unstamped=True)
    ]
    assert waits == [c.MARKER_UNSTAMPED]
    assert reason_of(c.MARKER_UNSTAMPED, drop_unstamped=True) is Reason.MARKER
    assert reason_of(c.MARKER_UNSTAMPED, drop_unstamped=False) is Reason.MARKER_HORIZON
