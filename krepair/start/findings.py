"""What the next start costs, beside what it does to each partition: findings that sum up the forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from krepair.checks.catalogue import Finding
from krepair.checks.recovery_time import ASSUMED, recovery_text
from krepair.checks.retention import Deletions
from krepair.fixes.index import indexes_of
from krepair.fixes.survey import Survey
from krepair.formats.broker_version import Version
from krepair.formats.filenames import offset_name
from krepair.formats.words import count_text
from krepair.logdir.values import LogDir
from krepair.options import Options
from krepair.start.forecast import RootFacts
from krepair.start.line import ForecastLine
from krepair.start.refusal import Cause, causes_of_refusal

PROVEN_VERSIONS: Final = ((2, 2, 1), (3, 9, 2), (4, 3, 1))
"""The brokers whose starts were watched; without ``--broker-version`` the forecast is told for each."""

_NAMED_AT_MOST: Final = 3


def recovery_findings(lines: Sequence[ForecastLine]) -> Iterator[Finding]:
    """KR801: one finding for the log directory, with the partitions that take longest."""
    read = [line for line in lines if line.bytes_read]
    if not read:
        return
    total = sum(line.bytes_read for line in read)
    seconds = sum(line.seconds for line in read)
    longest = sorted(read, key=lambda line: (-line.seconds, line.partition))[:_NAMED_AT_MOST]
    named = ", ".join(f"{line.partition} ({line.bytes_read} bytes)" for line in longest)
    yield Finding(
        rule="KR801",
        evidence=(
            f"{count_text(sum(len(line.segments) for line in read), 'segment')} of "
            f"{count_text(len(read), 'partition')}, {total} bytes: "
            f"{recovery_text(seconds)} ({ASSUMED}); longest: {named}"
        ),
        bytes=total,
    )


def refusal_findings(
    view: LogDir, surveys: Sequence[Survey], root: RootFacts, version: Version
) -> Iterator[Finding]:
    """KR803: each file that keeps a broker from starting, with the versions that it does so to."""
    versions = (version,) if version is not None else PROVEN_VERSIONS
    refused: dict[Cause, list[str]] = {}
    ends_all: dict[Cause, list[str]] = {}
    for one in versions:
        for cause in causes_of_refusal(view, surveys, root.metadata, one):
            name, same = ".".join(map(str, one)), cause._replace(ends_all=False)
            refused.setdefault(same, []).append(name)
            ends_all.setdefault(same, []).extend([name] * cause.ends_all)
    for cause, names in refused.items():
        yield Finding(
            rule="KR803",
            partition=cause.partition,
            file=cause.file,
            evidence=f"{_do_not_start(names)}: {cause.text}{_with_others(names, ends_all[cause])}",
        )


def _do_not_start(versions: Sequence[str]) -> str:
    if len(versions) == 1:
        return f"broker {versions[0]} does not start"
    return f"brokers {', '.join(versions)} do not start"


def _with_others(refused: Sequence[str], ends_all: Sequence[str]) -> str:
    """What a broker does that has other log directories, too: it goes on with those, or ends."""
    if not ends_all:
        return ""
    if len(ends_all) == len(refused):
        return "; it ends a broker with several log directories, too"
    return f"; {_do_not_start(ends_all)} with several log directories, either"


def retention_findings(survey: Survey, going: Deletions, options: Options) -> Iterator[Finding]:
    """KR702: segments whose time is over, where the retention is known and not Kafka's default."""
    if not going.due or not _retention_is_known(survey, options):
        return
    bases = set(going.due)
    size = sum(segment.log.size for segment in survey.partition.segments if segment.base_offset in bases)
    youngest = max(found.largest for base, found in indexes_of(survey).items() if base in bases)
    yield Finding(
        rule="KR702",
        partition=survey.partition.folder,
        evidence=(
            f"{count_text(len(bases), 'segment')} "
            f"from {offset_name(going.due[0])} to {offset_name(going.due[-1])}, {size} bytes: their youngest "
            f"record is of {youngest} ms, retention.ms={survey.settings.retention_ms}; the next start deletes them"
        ),
        bytes=size,
    )


def _retention_is_known(survey: Survey, options: Options) -> bool:
    source = next(one.source for one in survey.settings.settings if one.key == "retention.ms")
    return source != "default" or options.config is not None
