"""What is unsafe about the folder of ``plan --keep DIR``, as far as this host shows it. None of it is refused."""

from __future__ import annotations

from collections.abc import Iterator

from krepair.logdir.medium_below import disks_of, memory_file_system
from krepair.plan.keep import copies_in


def unsafe_places(keep: str, log_dir: str) -> Iterator[str]:
    """A sentence or two for each danger; nothing where no folder is named.

    Args:
        keep: as ``--keep`` takes it.
        log_dir: absolute path of the log directory.
    """
    path = copies_in(keep)
    if not path:
        return
    memory = memory_file_system(path)
    if memory:
        yield (
            f"{path} is in the memory of this host ({memory}) and is empty after a reboot. Then nothing can be taken "
            "back. Name a folder on a disk with --keep DIR."
        )
    shared = sorted(disks_of(path) & disks_of(log_dir))
    if shared:
        yield (
            f"{path} is on a disk of the log directory ({', '.join(shared)}). If that disk fails, the log and the "
            "originals are lost together. Name a folder on another disk with --keep DIR."
        )
