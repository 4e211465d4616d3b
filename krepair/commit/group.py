"""Files of a group of segments that a swap replaces by one: originals, new files, and what a broker left of both."""

from __future__ import annotations

from enum import Enum

from msgspec.structs import replace

from krepair.checks.parts import has_parts
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Intent
from krepair.commit.steps import CLEANED, litter_names, staged_extensions
from krepair.errors import RefusedError, StalePlanError, VerifyFailedError
from krepair.formats.filenames import LOG, SEGMENT_SUFFIXES, SWAP, segment_name


class Whereabouts(Enum):
    """Location of a group's new ``.log``."""

    STAGED = "staged"
    CLEANED = "cleaned"
    SWAP = "swap"
    FINAL = "final"
    OUT = "out"
    GONE = "gone"


class GroupFiles:
    """Files of one group in its partition folder; the ``OwnFiles`` of its steps.

    Args:
        folder: folder of the partition.
        intent: intent record of the change.
    """

    def __init__(self, folder: PartitionFolder, intent: Intent) -> None:
        self._folder = folder
        self._intent = intent
        self._names = folder.names
        self._log = intent.log
        self._originals = {state.name: state for state in intent.originals}

    # -- which file is which

    def is_original(self, name: str) -> bool:
        """Return whether the partition folder has an original under its own name."""
        folder, original = self._folder, self._originals.get(name)
        if original is None or folder.state(name) is None:
            return False
        kept = self._names.keep(name)
        if name not in self._intent.copied and folder.is_one_file(name, kept):
            return True
        if not folder.holds(name, original):
            return False
        # A rebuilt index may be identical to a correct original, so content cannot distinguish the two. Then the file
        # here is the new index if the original is in ``keep/`` and the new index is no longer in ``stage/``.
        new = next((made for made in self._intent.made if name in (made.name, made.name + SWAP)), None)
        if new is None or replace(new, name=name) != original or folder.state(kept) is None:
            return True
        return folder.state(self._names.stage(new.name)) is not None

    def missing_logs(self) -> list[str]:
        """Return the names of the original ``.log`` files that are missing from the partition folder."""
        return [name for name in self._originals if name.endswith(LOG) and not self.is_original(name)]

    def whereabouts(self) -> Whereabouts:
        """Return the location of the new ``.log``, which a broker that started in between may have moved or removed."""
        log = self._log.name
        places = {
            self._names.stage(log): Whereabouts.STAGED,
            log + CLEANED: Whereabouts.CLEANED,
            log + SWAP: Whereabouts.SWAP,
            log: Whereabouts.FINAL,
            self._names.out(log): Whereabouts.OUT,
        }
        return next((where for path, where in places.items() if self._is_new_log(path)), Whereabouts.GONE)

    def is_committed(self) -> bool:
        """Return whether an apply of the group has committed, judged by the order of renames in the intent record."""
        where = self.whereabouts()
        if where is not Whereabouts.SWAP:
            return where is Whereabouts.FINAL
        if self._intent.order == "P1":
            return True
        last = segment_name(self._intent.base_offset, staged_extensions(self._intent)[-1])
        return all(self._folder.state(path) is None for path in (self._names.stage(last), last + CLEANED))

    def staged_are_there(self) -> bool:
        """Return whether each staged file still exists under one of its names; a start removes ``.cleaned`` files."""
        return all(
            any(
                self._folder.holds(path, made)
                for path in (self._names.stage(made.name), made.name + CLEANED, made.name + SWAP)
            )
            for made in self._intent.made
        )

    def _is_new_log(self, path: str) -> bool:
        """Return whether a path holds the new log of the group.

        A broker's cleaner also writes ``.cleaned`` and ``.swap`` logs, with the same modification time. So this method
        reads the content of such a file, unless this run put the file there. Another plan, or a cleaner that finds
        nothing to clean, may write an identical log. Such a log is not the group's new log if the new log is still in
        ``stage/`` or already has its final name.
        """
        folder, new, parts = self._folder, self._log, self._intent.parts
        current, staged = folder.state(path), self._names.stage(new.name)
        if current is None or not path.endswith((CLEANED, SWAP)):
            return folder.holds(path, new)
        if folder.state(staged) is not None and not folder.is_one_file(staged, path):
            return False
        if folder.holds(new.name, new) and not self.is_original(new.name):
            return False
        if not parts:
            return folder.holds(path, new)
        return folder.is_verified(
            path, lambda: current.size == new.size and has_parts(folder.at(path), parts, folder.tree)
        )

    def check_log(self, path: str) -> None:
        """Check that an existing ``.log`` is an original of the group or the group's new log.

        Raises:
            StalePlanError: another program wrote this log.
        """
        current = self._folder.state(path)
        if current is None or "/" in path or not path.removesuffix(SWAP).removesuffix(CLEANED).endswith(LOG):
            return
        if not self.is_original(path) and not self._is_new_log(path):
            raise StalePlanError(
                f"{self._folder.at(path)}: expected the original, or the file that this plan made ({self._log.size} "
                f"bytes); found another one ({current.size} bytes): it was written since"
            )

    def check_logs(self) -> None:
        """Check that every ``.log`` under a name of the group is an original or the new log.

        Raises:
            StalePlanError: another program wrote one of these logs; the message names the log.
        """
        for base_offset in self._intent.sources:
            for suffix in ("", SWAP, CLEANED):
                self.check_log(segment_name(base_offset, LOG) + suffix)

    def check_replaced(self) -> None:
        """Check that the new segment's files have their final names, and that no replaced file exists.

        Raises:
            StalePlanError: a new file is missing, or a replaced file exists; the message names the file.
        """
        folder = self._folder
        for made in self._intent.made:
            if folder.state(made.name) is None and (made.size or not made.name.endswith(".txnindex")):
                raise StalePlanError(
                    f"{folder.at(made.name)}: is gone: removed by a broker started in between"
                )
        self.check_log(self._log.name)
        finals = {segment_name(self._intent.base_offset, extension) for extension in SEGMENT_SUFFIXES}
        for name in self._originals:
            if name not in finals and folder.state(name) is not None:
                raise StalePlanError(f"{folder.at(name)}: was written since the plan was made")

    # -- may a step be done? see ``stepping.OwnFiles``

    def may_keep(self, name: str, kept: str) -> bool:
        folder = self._folder
        source, backup = folder.state(name), folder.state(kept)
        if source is None:
            raise StalePlanError(f"{folder.at(name)}: is gone since the plan was made")
        if backup is None or (backup.size, backup.mtime_ns) != (source.size, source.mtime_ns):
            return True
        return name not in self._intent.copied and not folder.is_one_file(name, kept)

    def may_put(self, source: str, target: str) -> bool:
        folder = self._folder
        if folder.state(source) is None or self.is_original(source):
            return False
        self.check_log(source)
        self.check_log(target)
        place, _, name = source.rpartition("/")
        made = self._intent.new(name)
        if place == self._names.stage() and (made is None or not folder.holds(source, made)):
            raise not_staged(folder, source)
        return True

    def may_move_out(self, source: str, target: str) -> bool:
        return self.may_put(source, target)

    def may_take(self, name: str) -> bool:
        folder, kept = self._folder, self._names.keep(name)
        if not self.is_original(name):
            return False
        if folder.state(kept) is None:
            raise RefusedError(f"{folder.at(name)}: is not kept in {folder.at(self._names.keep())}; it stays")
        return True

    def may_restore(self, kept: str, name: str) -> bool:
        folder = self._folder
        if self.is_original(name):
            return False
        if folder.state(kept) is None:
            raise StalePlanError(f"{folder.at(kept)}: the kept original is gone, so the new segment stays")
        if name.endswith(LOG) and folder.state(name) is not None:
            raise StalePlanError(f"{folder.at(name)}: was written since the plan was applied")
        return True

    # -- what a stopped broker left

    def litter(self) -> list[str]:
        """Return the existing ``.swap`` and ``.cleaned`` files of the group, except those of other programs.

        The ``.log.swap`` or ``.log.cleaned`` shows who wrote the files: krepair's log has the content of the group's
        new log. A broker that was stopped during cleaning leaves its own log and indexes.
        """
        log = self._log.name
        foreign = tuple(suffix for suffix in (CLEANED, SWAP) if self.is_of_another_program(log + suffix))
        names = [name for name in litter_names(self._intent) if self._folder.state(name) is not None]
        return [name for name in names if not name.endswith(foreign)]

    def is_of_another_program(self, path: str) -> bool:
        """Return whether a path holds a ``.log.swap`` or ``.log.cleaned`` other than the group's new log."""
        return self._folder.state(path) is not None and not self._is_new_log(path)

    def remove_litter(self) -> None:
        """Remove the ``.swap``, ``.cleaned`` and ``.deleted`` files of the group that a stopped broker left.

        After an upgrade, a broker from 3.0 on would rename such an index swap over a good index without reading the
        swap.
        """
        for name in self.litter():
            self._folder.remove(name)
        self.remove_set_aside()

    def remove_set_aside(self) -> None:
        """Remove ``.deleted`` names that a broker gave to originals, if the original also exists under another name."""
        folder = self._folder
        for original in self._intent.originals:
            aside = f"{original.name}.deleted"
            if original.name in self._intent.copied or folder.state(aside) is None:
                continue
            # A run that was killed while linking originals into ``keep/`` may have left some of the originals unlinked.
            places = (original.name, self._names.keep(original.name))
            held = [path for path in places if folder.holds(path, original)]
            if any(folder.is_one_file(aside, path) for path in held) or (
                held and folder.holds(aside, original)
            ):
                folder.remove(aside)
        folder.sync("")


def not_staged(folder: PartitionFolder, path: str) -> VerifyFailedError:
    """Return the error for a staged file whose content differs from what krepair wrote."""
    return VerifyFailedError(f"{folder.at(path)}: is not the file that krepair made; nothing was replaced")
