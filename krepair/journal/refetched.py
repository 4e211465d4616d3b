"""Whether a replica that was set aside as a whole has come back: what is kept of it may be the only copy until then.

The journal alone tells, so that it is known where the plan is lost, too. Of a plan that cuts a log, a segment stays.
"""

from __future__ import annotations

import shlex

from krepair.errors import RefusedError
from krepair.formats.filenames import FileKind, NameState, parse_file_name
from krepair.journal.actions.aside import logs_set_aside
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import Journal


def waits_for_fetch(folder: PartitionFolder, journal: Journal) -> bool:
    """Whether a replica was set aside, and nothing says yet that its broker has fetched it again.

    A broker makes an empty log at offset 0 when it starts, before it has asked any other. So this one counts for
    nothing. An empty log at another offset begins where the leader's does.

    Raises:
        OSError: the folder could not be looked at.
    """
    if journal.purging is not None or not any(log.size for log in logs_set_aside(journal)):
        return False
    return folder.tree.is_folder(folder.path) and not _is_fetched(folder)


def check_fetched(folder: PartitionFolder, journal: Journal) -> None:
    """Checks that what is kept of a replica is not needed any more.

    Raises:
        RefusedError: it may be the only copy; the message says what to do.
        OSError: the folder could not be looked at.
    """
    if waits_for_fetch(folder, journal):
        raise RefusedError(
            f"{folder.path}: the broker has not fetched {folder.folder} again; start it first, wait until it is in "
            "sync. What is kept may be the only copy until then, so nothing of it was purged. If the partition was "
            "given to other brokers, see docs/refetch.md; "
            f"next: krepair purge {shlex.quote(folder.log_dir)} --plan-id {folder.plan_id}"
        )


def _is_fetched(folder: PartitionFolder) -> bool:
    """Whether a log is there that tells of a fetch."""
    for parsed in map(parse_file_name, folder.file_names()):
        if parsed.kind is FileKind.LOG and parsed.state is NameState.LIVE and parsed.base_offset is not None:
            found = folder.state(parsed.name)
            if found is not None and (found.size > 0 or parsed.base_offset > 0):
                return True
    return False
