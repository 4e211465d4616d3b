"""Sentences on what a simulated start removes from a partition, for the forecast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from krepair.engine.items import Failed
from krepair.fixes.analysis import NEXT_START, PartitionAnalysis, indexes_of, log_end_of, next_start_of
from krepair.fixes.damage import damaged_logs
from krepair.fixes.epochs import EPOCHS_RESULT, read_epochs_file
from krepair.formats.broker_version import VersionNumber
from krepair.formats.filenames import log_name, offset_name
from krepair.formats.words import count_text
from krepair.loading.next_start import LoadedLog
from krepair.rules.damage import broker_loss, why_not_mapped


def simulated_of(analysis: PartitionAnalysis) -> Mapping[VersionNumber, LoadedLog]:
    """Return the simulated starts of a partition by version; empty if it is sound or could not be read whole."""
    start = next_start_of(analysis)
    return start.by_version if start.is_simulated else {}


def outcome_text(analysis: PartitionAnalysis, outcome: LoadedLog) -> str:
    """Describe what a start cuts, drops or splits, or return an empty text."""
    cut, dropped = dict(outcome.cut), outcome.dropped
    swaps = {leftover.base_offset for leftover in analysis.partition.leftovers if leftover.kind == "swap"}
    before = swaps | {segment.base_offset for segment in analysis.partition.segments}
    created = [base for base, _ in outcome.segments if base not in before]
    texts = list(_cut_texts(analysis, cut, dropped))
    if dropped and not cut:
        texts.append(f"log start {outcome.log_end} is past the log end: every segment is deleted")
    elif created:
        names = ", ".join(offset_name(base) for base in created)
        texts.append(f"recovery splits a segment and makes {names}")
    valid_end = log_end_of(analysis.segments)
    if (
        not cut
        and not dropped
        and not created
        and not swaps
        and analysis.segments
        and outcome.log_end != valid_end
    ):
        if not analysis.segments[-1].summary.damage:
            reason = f"by its index the broker takes {outcome.log_end} for the log end"
        else:
            reason = f"by the sizes of batches alone the broker takes {outcome.log_end} for the log end"
        last = (
            f"the last valid batch ends with {valid_end - 1}" if valid_end else "no batch before it is valid"
        )
        texts.append(f"{reason}: {last}")
    return "; ".join(texts)


def _cut_texts(analysis: PartitionAnalysis, cut: dict[int, int], dropped: tuple[int, ...]) -> Iterator[str]:
    logs = damaged_logs(analysis)
    numbers = {facts.base_offset: number for number, facts in enumerate(analysis.segments)}
    for base_offset, size in sorted(cut.items()):
        cut_text = f"recovery cuts {log_name(base_offset)} at position {size}"
        if why_not_mapped(logs) or base_offset not in logs.maps:
            drops = f" and drops {count_text(len(dropped), 'later segment')}" if dropped else ""
            yield cut_text + drops
            continue
        loss = broker_loss(logs, numbers[base_offset], size, alone=not dropped)
        later = base_offset != analysis.partition.segments[-1].base_offset
        stay = "; later segments stay, behind a gap" if later and not dropped else ""
        yield f"{cut_text}: {loss.text()} are lost{stay}"


def why_unknown(analysis: PartitionAnalysis) -> str:
    """Return why a part of the partition was not read, or an empty text if all was read."""
    partition, epochs = analysis.partition, analysis.result(EPOCHS_RESULT)
    if partition.unreadable:
        return partition.unreadable
    if partition.special is not None:
        return f"{partition.special.name}: a {partition.special.kind}, which krepair does not open"
    results = (next_start_of(analysis).unread, *indexes_of(analysis).values())
    failed = next((result.why for result in results if isinstance(result, Failed)), "")
    if not failed and partition.segments and analysis.result(NEXT_START) is None:
        failed = "its start was not simulated, so nothing is known of it"
    return failed or (read_epochs_file(partition).wrong if epochs is None else epochs.unread)
