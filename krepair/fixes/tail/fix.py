"""Class of ``--fix tail`` for the table of fixes; ``decide`` and ``make`` do the work.

The fix cuts a torn tail. It repairs other damage only if a consent names that damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.errors import UsageError
from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.context import Context
from krepair.fixes.damage import damages_in, map_damaged_logs
from krepair.fixes.fix import Fix, Proposal, Purpose
from krepair.fixes.gate import analyses_apart, why_untouched
from krepair.fixes.logs import read_logs
from krepair.fixes.second_readings import SecondReading
from krepair.fixes.staging import Staging, Work
from krepair.fixes.tail.decide import (
    TAIL_RESULT,
    check_untouched,
    damage_findings,
    decide,
    skipped_proposal,
)
from krepair.options import consents_of
from krepair.rules.tail import wrong_consent


class Tail(Fix):
    """Fix ``tail``, which cuts torn tails; by consent it excises other damage, or cuts there as a broker would."""

    name = "tail"
    reads_logs = True
    modes = ("excise", "broker")
    after = ("leftovers",)

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Map the damage; for a plan, also compute the files that replace the damaged logs.

        Raises:
            UsageError: a consent does not name any damage in the logs.
        """
        if purpose == "check":
            map_damaged_logs(context, analyses)
            return
        touched = [
            analysis for analysis in analyses if not why_untouched(analysis.partition, analysis.settings)
        ]
        waiting = analyses_apart(analyses)
        read_logs(context, [*touched, *waiting])
        map_damaged_logs(context, touched)
        check_untouched(context.options, analyses)
        damages = {analysis.partition.folder: damages_in(context.view, analysis) for analysis in touched}
        for text in consents_of(self.name, context.options.accepted_losses):
            if wrong := wrong_consent(text, damages):
                raise UsageError(wrong)
        decide(context, touched)
        for analysis in analyses:
            why = why_untouched(analysis.partition, analysis.settings)
            if why:
                analysis.put(TAIL_RESULT, skipped_proposal(analysis, why))

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return findings KR301 to KR305, with the loss that each repair costs, and the changes planned."""
        decided = analysis.result(TAIL_RESULT) or Proposal()
        return decided._replace(findings=damage_findings(context.view, analysis))

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Stage the logs without their damage; a segment that is moved to backup needs no staged file."""
        from krepair.fixes.tail.make import stage_repaired_logs

        stage_repaired_logs(work, stagings)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Yield the checks of applied changes, see ``readings_of_repaired_logs``."""
        from krepair.fixes.tail.make import readings_of_repaired_logs

        return readings_of_repaired_logs(work, staging)


TAIL = Tail()
