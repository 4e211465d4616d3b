"""The log directories of other replicas: each is listed once in a run of apply, then one folder at a time again."""

from __future__ import annotations

from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir, read_partition


class LockedDirs:
    """Log directories of other replicas, whose locks apply holds: no broker changes them meanwhile.

    Their partitions are many, and are not all listed again for each of ours.
    """

    def __init__(self) -> None:
        self._views: dict[str, LogDir] = {}

    def look(self, log_dir: str, folder: str) -> tuple[LogDir, Partition | None]:
        """A log directory, and one partition folder of it as it is now.

        Args:
            log_dir: absolute path of the log directory.
            folder: name of the folder.

        Returns:
            The directory as it was listed first; and the folder, None if it was not there, or is not any more.

        Raises:
            NotALogDirError: it is no log directory.
            UnreadableError: it cannot be read.
        """
        view = self._views.get(log_dir)
        if view is None:
            view = self._views[log_dir] = read_log_dir(log_dir)
        if all(one.folder != folder for one in (*view.partitions, *view.marked)):
            return view, None
        try:
            return view, read_partition(view, folder)
        except OSError:
            return view, None
