"""Where the items of an engine find a partition."""

from __future__ import annotations

import socket
from pathlib import Path

from krepair.engine.items import Place


def place_of(folder: Path) -> Place:
    """A partition folder on this host."""
    log_dir = folder.parent
    return Place(
        host=socket.gethostname(),
        log_dir=str(log_dir),
        log_dir_inode=log_dir.stat().st_ino,
        folder=folder.name,
    )
