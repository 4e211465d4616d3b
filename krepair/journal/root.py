"""The root of a log directory as commit and undo see it: its checkpoint files, replaced one by one.

A folder of ours in the root would keep every broker from starting, so what is staged and kept lies in a sub-folder of
one partition folder, as the fence's files do; it has a journal of its own and lives and goes by itself. A root file is
replaced as an index is: kept by a hard link, then renamed over, so that every instant has the old file or the new one.
"""

from __future__ import annotations

from krepair.durable.disk import Disk
from krepair.formats.filenames import root_private_folder
from krepair.journal.folder import PartitionFolder
from krepair.journal.steps import Names
from krepair.plan.model import PartitionPlan, RootPlan

ROOT = "."
"""What stands for the root where a partition folder has its name."""


class RootFolder(PartitionFolder):
    """The root, with its private sub-folder in a partition folder.

    Args:
        disk: what writes.
        log_dir: absolute path of the log directory.
        keeper: name of the partition folder that holds the private sub-folder.
        plan_id: names the private sub-folder.
    """

    def __init__(self, disk: Disk, log_dir: str, keeper: str, plan_id: str) -> None:
        super().__init__(disk, log_dir, ROOT, plan_id)
        self.path = log_dir
        self.names = Names(f"{keeper}/{root_private_folder(plan_id)}")
        self.private = f"{log_dir}/{self.names.private}"
        self.holder = f"{log_dir}/{keeper}"


def as_partition(root: RootPlan) -> PartitionPlan:
    """The root's changes in the form in which the runner carries changes out."""
    return PartitionPlan(
        topic="",
        partition=0,
        folder=ROOT,
        status="change",
        files=root.files,
        changes=root.changes,
        notes=root.notes,
    )
