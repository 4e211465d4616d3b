"""KR309: topics whose batches are so large, and so many of whose partitions lie here, that old clients fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.checks.catalogue import Finding
from krepair.checks.fetch_size import MOST_RESPONSE_BYTES, fetch_overflows
from krepair.fixes.survey import Survey
from krepair.formats.words import count_text


def fetch_findings(surveys: Sequence[Survey]) -> Iterator[Finding]:
    """One finding per topic, from the largest batch that the scans met."""
    largest: dict[str, list[int]] = {}
    for survey in surveys:
        sizes = [facts.summary.largest_batch for facts in survey.segments]
        largest.setdefault(survey.partition.topic, []).append(max(sizes, default=0))
    for one in fetch_overflows(largest):
        yield Finding(
            rule="KR309",
            evidence=(
                f"topic {one.topic}: {count_text(one.partitions, 'partition')} here and a batch of "
                f"{one.largest_batch} bytes make "
                f"a response of up to {one.response_bytes} bytes, but at most {MOST_RESPONSE_BYTES} can be sent"
            ),
        )
