"""A whole segment taken out of its partition and kept: what a broker's recovery would have deleted.

The ``.log`` leads: without its name the segment is out, and a broker deletes an index without a log, while the link in
``keep/`` stays. Segments go highest first, so that no state has a gap. See ``krepair.journal.actions.files``.
"""

from __future__ import annotations

from collections.abc import Mapping

from krepair.errors import StalePlanError
from krepair.formats.filenames import FileKind, NameState, parse_file_name
from krepair.journal.actions.action import Target
from krepair.journal.actions.files import ChangeFiles
from krepair.journal.folder import PartitionFolder
from krepair.journal.freshness import original
from krepair.journal.record import Intent
from krepair.journal.steps import Becomes
from krepair.plan.model import FileFingerprint, SetAside


class SetSegmentsAside(ChangeFiles[SetAside]):
    """Implements ``JournalAction`` for segments that are taken out."""

    kind = SetAside

    def begin(self, target: Target, change: SetAside) -> Intent:
        """The intent, once every file is found as it was planned.

        Raises:
            StalePlanError: one changed, or is gone.
        """
        folder, states = target.folder, []
        for name in change.names:
            state = original(folder, target.planned, name)
            if state is None:
                raise StalePlanError(f"{folder.at(name)}: is not there")
            states.append(state)
        return Intent(change_id=change.change_id, kind="set aside", originals=tuple(states))

    def files(self, intent: Intent) -> tuple[Becomes, ...]:
        """The files of the segment; what a broker has put in the place of an index or a snapshot gives way."""
        log, *others = intent.originals
        return (Becomes(log.name, log, None), *(Becomes(one.name, one, None, None, "goes") for one in others))

    def check_back(self, folder: PartitionFolder, intent: Intent) -> None:
        """Checks that the segment can come back whole.

        Raises:
            StalePlanError: another segment has the name, or a kept file is gone.
        """
        log, names = intent.originals[0], folder.names
        if folder.state(log.name) is not None and not folder.holds(log.name, log):
            raise StalePlanError(f"{folder.at(log.name)}: was written since the plan was applied")
        for state in intent.originals:
            if not any(folder.holds(path, state) for path in (state.name, names.keep(state.name))):
                kept = folder.at(names.keep(state.name))
                raise StalePlanError(f"{kept}: is not the original of {state.size} bytes that was kept")

    def check_log_ends_before(
        self, folder: PartitionFolder, intent: Intent, planned: Mapping[str, FileFingerprint]
    ) -> None:
        """Checks, before a segment comes back, that nobody has written to the log since: it was the end of it.

        A broker that was started while only some segments were out, or back, goes on with the log where it ends. What
        it fetched there has the offsets of the segments that are kept.
        """
        own = intent.originals[0]
        if folder.state(own.name) is not None:
            return  # it is back already, or another one has its name: see check_back
        found = map(parse_file_name, folder.file_names())
        logs = sorted(one.name for one in found if one.kind is FileKind.LOG and one.state is NameState.LIVE)
        last = logs[-1] if logs else ""
        here, plan = folder.state(last) if last else None, planned.get(last)
        if here is None:
            return
        if last > own.name or plan is None or (here.size, here.mtime_ns) != (plan.size, plan.mtime_ns):
            raise StalePlanError(
                f"{folder.at(last)}: was written since {own.name} was set aside: a broker has gone on with the log, "
                "and what is kept would come back over its offsets; nothing more was changed"
            )
