"""All that was seen of one log directory: what every row of ``krepair.ops.findings.table`` is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from krepair.checks.retention import Deletions
from krepair.fixes.context import Context
from krepair.fixes.survey import Survey
from krepair.logdir.metadata_log import MetadataImage
from krepair.logdir.values import LogDir
from krepair.ops.reports import KeptPlan
from krepair.start.findings import Starting
from krepair.start.line import ForecastLine
from krepair.start.refusal import RootFacts
from krepair.start.start_space import StartSpace


class Seen(NamedTuple):
    """One log directory, looked at.

    Attributes:
        context: where, with settings and options.
        others: the other log directories that were given.
        surveys: its partitions.
        root: what was seen in the root.
        going: folder -> what retention by time deletes at the next start.
        starting: what ends the next start, or puts folders aside.
        forecast: what the next start does to each partition.
        space: what it needs on the disk.
        kept: what applied plans keep.
        metadata: the cluster's state as the metadata log of the node has it; None without a whole one.
    """

    context: Context
    others: Sequence[LogDir]
    surveys: Sequence[Survey]
    root: RootFacts
    going: Mapping[str, Deletions]
    starting: Starting
    forecast: tuple[ForecastLine, ...]
    space: StartSpace
    kept: tuple[KeptPlan, ...]
    metadata: MetadataImage | None

    @property
    def view(self) -> LogDir:
        """As listed."""
        return self.context.view
