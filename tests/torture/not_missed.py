"""Syncs of krepair that nobody misses when they alone are left out, and why they stay.

``python -m tools.torture.syncs`` finds them anew. A sync that is not missed and is not here is a question: is it
needed, or is the programme blind?
"""

_OTHER_FOLDER = "a rename is one step, and the other of its two folders is synced in the next line"
_LATER = (
    "the same file is synced again once its attributes are right; a file system may want bytes before names"
)
_AT_OPENING = "every run syncs these folders again before its first record (``sync_all``)"
_OF_A_KILLED_RUN = "this one is for what a killed run left; few kills leave something that is missed"
_STAGED_NAME = "a staged file whose name is lost is made again; its bytes are what has to be there"
_ONLY_LITTER = "what comes back is litter of krepair's own, which the next run of any verb removes"

_FOR_BROKERS = "krepair comes to the same end without it; a broker that is started after the loss does not"
_FENCE_GOES = "the fence is down by then; what comes back of its folder is cleared by the next run"
_SYNCED_THREE_TIMES = (
    "the folder is synced as a run opens it, as staged files get their names, and as it is listed"
)
_SAME_FOLDER = "the next record, or the next file of the same folder, syncs the folder, too"

_FILES = "commit/change_files.py ChangeFiles"
_KEPT = f"{_FILES}.go_on: run(folder, [SyncDir(folder.names.keep())])"
_SWAPPED = f'{_FILES}.go_on: run(folder, [SyncDir("")])'
_MEND = "commit/mend.py"
_LOG_BACK = f'{_MEND} MendLogs.go_back: run(folder, [*back, SyncDir(""), *forget, *fronts], files)'
_OPEN = "commit/partition.py _Run._open: folder.sync_all()"
_MAKE = "commit/folder.py PartitionFolder.make_private_folders"
_NEW = "fixes/carry_out.py _make_durable: folder.sync_new()"
OPENED = f"{_OPEN} [partition folder]"
NEW_NAMES = f"{_NEW} [partition folder]"
LISTED = "commit/listing.py take_listing: folder.disk.sync_dir(folder.path) [partition folder]"
HOLDER = f"{_MAKE}: self.disk.sync_dir(self.holder) [partition folder]"
CLEARED = "commit/fence.py Fence._clear: self._disk.sync_dir(self.place) [fence]"
FENCE_SOURCE = "commit/fence.py Fence._move: self._disk.sync_dir(os.path.dirname(source))"
FENCE_TARGET = "commit/fence.py Fence._move: self._disk.sync_dir(os.path.dirname(target))"
_GROUPS = "commit/segments.py SwapGroups"

_OWNERS = "the folders of a scene may have the owner and mode of whoever makes them; see ``MISSED``"

NOT_MISSED: dict[str, str] = {
    **{
        f"fixes/carry_out.py _make_durable: folder.sync_new() [{place}]": _OWNERS
        for place in ("stage", "keep", "out")
    },
    "durable/real_disk.py RealDisk.create: os.fsync(target) [stage]": _LATER,
    HOLDER: _AT_OPENING,
    OPENED: _SYNCED_THREE_TIMES,
    NEW_NAMES: _SYNCED_THREE_TIMES,
    LISTED: _SYNCED_THREE_TIMES,
    f"{_NEW} [private folder]": "the copy of the plan is put into this folder next, which syncs it",
    f"{_MAKE}: self.disk.sync_dir(self.private) [private folder]": _AT_OPENING,
    "commit/purge.py remove_private_folder: folder.disk.sync_dir(folder.private) [private folder]": _ONLY_LITTER,
    f"{_OPEN} [keep]": _OF_A_KILLED_RUN,
    f"{_OPEN} [private folder]": _OF_A_KILLED_RUN,
    f"{_OPEN} [stage]": _OF_A_KILLED_RUN,
    f"{_OPEN} [out]": _OF_A_KILLED_RUN,
    f"{_OPEN} [log directory]": _OF_A_KILLED_RUN,
    f"{_FILES}.go_on.<locals>.<lambda>: swapped = _until_an_error(intents, lambda intent: "
    "run_files(folder, swap_files, becomes(intent))) [partition folder]": _FOR_BROKERS,
    f"{_FILES}.go_back.<locals>.put_back: run_files(folder, files_back, files) "
    "[partition folder]": _FOR_BROKERS,
    f"{_FILES}.go_back: run(folder, forget_files(back, folder.names)) [keep]": _FOR_BROKERS,
    f'{_FILES}.go_back: run(folder, [SyncDir("")]) [log directory]': (
        "a checkpoint comes back by a rename out of keep/, which is synced too"
    ),
    f'{_FILES}.go_back: run(folder, [SyncDir("")]) [partition folder]': (
        "files come back by renames out of keep/, which is synced too; the removal of one that was not there needs it"
    ),
    f"{_MEND} MendLogs.go_back: run(folder, _steps_to_the_old_log(folder, intent), files) "
    "[partition folder]": _FOR_BROKERS,
    "durable/real_disk.py RealDisk.create: os.fsync(target) [out]": _FOR_BROKERS,
    f"{_LOG_BACK} [keep]": _FOR_BROKERS,
    f"{_LOG_BACK} [partition folder]": (
        "indexes come back by renames out of keep/, which is synced too; the removal of one that was not there needs it"
    ),
    "commit/fence.py Fence._clear: self._disk.sync_dir(self._folder.private) [private folder]": _FENCE_GOES,
    CLEARED: _FENCE_GOES,
    f"{FENCE_SOURCE} [fence]": _OTHER_FOLDER,
    f"{FENCE_SOURCE} [log directory]": _OTHER_FOLDER,
    f"{FENCE_TARGET} [fence]": _OTHER_FOLDER,
    f"{FENCE_TARGET} [log directory]": _OTHER_FOLDER,
    "commit/fence.py Fence.put_up: self._disk.sync_dir(self.place) [fence]": _SAME_FOLDER,
    "commit/segments.py _OfGroup.go_on: run(folder, self._steps_to_commit(folder, intent), group) "
    "[stage]": _OTHER_FOLDER,
    f"{_GROUPS}.go_back: run(folder, synced(backwards(steps, intent, names)), group) [out]": _OTHER_FOLDER,
    "commit/kept.py PlanKeeper._keep_in: self._disk.sync_dir(folder.private) [private folder]": _SAME_FOLDER,
    "fixes/carry_out.py _make_durable: work.disk.sync_dir(staging.stage_folder) [stage]": _STAGED_NAME,
    "fixes/recovery/make.py _all_is_written: return work.disk.sync_file_system(work.view.path, folders) "
    "[file system]": "the logs of a scene are on the disk when it begins",
    "rewrite/segments/stage.py _make_companions: disk.sync_dir(item.stage) [stage]": _STAGED_NAME,
    f"{_MEND} _give_bytes_back: folder.disk.sync_file(folder.at(name)) [file]": (
        "the same file is synced again once its time is right; what is read back in between has to be on the disk"
    ),
    "rewrite/damage.py _finish: disk.sync_dir(item.target) [stage]": _STAGED_NAME,
}

TOGETHER: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "markers-without-points",
        "apply",
        (f"{FENCE_SOURCE} [fence]", f"{FENCE_TARGET} [log directory]", CLEARED),
    ),
    ("indexes", "apply", (OPENED, NEW_NAMES, LISTED)),
)
"""Scene, history, and syncs that stand in for each other: without all of them something is missed."""

_ALL_STAGED = (
    "fixes/carry_out.py _make_all_durable: done = work.disk.sync_file_system(work.view.path, _paths_of(new)) "
    "[file system]"
)
_OF_EVERY_APPLY = (
    "durable/real_disk.py RealDisk.create: os.fsync(target) [private folder]",
    "durable/disk.py put_whole: disk.sync_dir(os.path.dirname(path)) [private folder]",
    f"{_KEPT} [keep]",
    f"{_SWAPPED} [partition folder]",
)
_OF_STAGED_FILES = (
    "durable/real_disk.py RealDisk.create: os.fsync(target) [stage]",
    *(f"{_NEW} [{place}]" for place in ("stage", "keep", "out")),
)
_OF_RECOVERY = (
    "durable/real_disk.py RealDisk.append: os.fsync(target) [journal]",
    f"{_SWAPPED} [partition folder]",
    f"{_SWAPPED} [log directory]",
)

MISSED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("indexes", (*_OF_STAGED_FILES, *_OF_EVERY_APPLY)),
    ("indexes~one-barrier", (_ALL_STAGED, *_OF_EVERY_APPLY)),
    ("recovery", _OF_RECOVERY),
    ("recovery~one-barrier", (_ALL_STAGED, *_OF_RECOVERY)),
)
"""Scene, and syncs of its apply each of which is missed: those that a partition of many costs, one by one."""
