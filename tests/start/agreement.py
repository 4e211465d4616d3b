"""Findings and forecast of one report say the same of the next start, whatever rule they are of."""

from __future__ import annotations

from collections.abc import Iterator

from krepair.checks.catalogue import StartEffect, start_of
from krepair.findings.reports import LogDirReport


def disagreements(report: LogDirReport) -> list[str]:
    """Where they contradict each other; of one log directory whose broker has no other one."""
    return list(_disagreements(report))


def _disagreements(report: LogDirReport) -> Iterator[str]:
    ending = [one for one in report.findings if start_of(one) in {StartEffect.ENDS, StartEffect.DIRECTORY}]
    aside = [one for one in report.findings if start_of(one) is StartEffect.ASIDE]
    for line in report.forecast:
        where = f"{line.partition} is foretold to {line.expected}"
        if ending and line.expected != "refuse":
            yield f"{where}, but {ending[0].rule} says that the broker does not start"
        if not ending and line.expected == "refuse":
            yield f"{where}, and no finding says why: {line.text}"
        own = [one for one in aside if one.partition in {"", line.partition}]
        if own and line.expected not in {"refuse", "stray"} and line.partition != "__cluster_metadata-0":
            yield f"{where}, but {own[0].rule} says that it is put aside"
        if line.expected == "stray" and not own:
            yield f"{where}, and no finding says why: {line.text}"
        if line.expected in {"truncate", "delete"} and not any(
            one.partition in {"", line.partition} for one in report.findings
        ):
            yield f"{where}, and nothing is found there"
