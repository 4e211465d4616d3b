"""What a simulated start takes away from a partition, in words for its forecast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from krepair.fixes.survey import Survey, log_end_of, next_start_of
from krepair.fixes.tail import damaged_logs
from krepair.formats.broker_version import VersionNumber
from krepair.formats.filenames import log_name, offset_name
from krepair.formats.words import count_text
from krepair.loading.next_start import LoadedLog
from krepair.rules.damage import broker_loss, unmapped


def simulated_of(survey: Survey) -> Mapping[VersionNumber, LoadedLog]:
    """Return the simulated starts of a partition by version; none where nothing is wrong, or not all could be read."""
    start = next_start_of(survey)
    return start.by_version if start.is_simulated else {}


def outcome_text(survey: Survey, outcome: LoadedLog) -> str:
    """What a start takes away or moves, in words, or empty."""
    cut, gone = dict(outcome.cut), outcome.dropped
    swaps = {one.base_offset for one in survey.partition.leftovers if one.kind == "swap"}
    before = swaps | {segment.base_offset for segment in survey.partition.segments}
    new = [base for base, _ in outcome.segments if base not in before]
    texts = list(_cut_texts(survey, cut, gone))
    if gone and not cut:
        texts.append(f"log start {outcome.log_end} is past the log end: every segment is deleted")
    elif new:
        names = ", ".join(offset_name(base) for base in new)
        texts.append(f"recovery splits a segment and makes {names}")
    whole = log_end_of(survey.segments)
    if not cut and not gone and not new and not swaps and survey.segments and outcome.log_end != whole:
        if not survey.segments[-1].summary.damage:
            known = f"by its index the broker takes {outcome.log_end} for the log end"
        else:
            known = f"by the sizes of batches alone the broker takes {outcome.log_end} for the log end"
        last = f"the last valid batch ends with {whole - 1}" if whole else "no batch before it is valid"
        texts.append(f"{known}: {last}")
    return "; ".join(texts)


def _cut_texts(survey: Survey, cut: dict[int, int], gone: tuple[int, ...]) -> Iterator[str]:
    logs = damaged_logs(survey)
    numbers = {facts.base_offset: number for number, facts in enumerate(survey.segments)}
    for base_offset, size in sorted(cut.items()):
        where = f"recovery cuts {log_name(base_offset)} at position {size}"
        if unmapped(logs) or base_offset not in logs.maps:
            drops = f" and drops {count_text(len(gone), 'later segment')}" if gone else ""
            yield where + drops
            continue
        loss = broker_loss(logs, numbers[base_offset], size, alone=not gone)
        later = base_offset != survey.partition.segments[-1].base_offset
        stay = "; later segments stay, behind a gap" if later and not gone else ""
        yield f"{where}: {loss.text()} are lost{stay}"
