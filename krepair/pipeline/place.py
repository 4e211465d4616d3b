"""Opens the log directory of a work item, once, for everything that its task reads and writes."""

from __future__ import annotations

import errno
import socket

from krepair.durable.tree import Tree
from krepair.logdir.reading import why
from krepair.pipeline.items import Place


def reached(place: Place) -> tuple[Tree, str]:
    """The log directory of a place, and why this worker cannot do an item there, or empty.

    It is opened here, and everything is read and written below the directory that was opened: one that takes its name
    meanwhile is not touched, and is noticed by the next item.
    """
    tree = Tree(place.log_dir, place.log_dir_inode)
    if place.host != socket.gethostname():
        return tree, f"the work is on host {place.host}, this worker runs on {socket.gethostname()}"
    try:
        tree.status(place.log_dir)
    except OSError as error:
        if error.errno == errno.ESTALE:
            return tree, f"{place.log_dir} is not the same directory on this worker"
        return tree, f"{place.log_dir}: {why(error)}"
    return tree, ""
