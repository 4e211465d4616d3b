"""Which log directory a path leads to: by what it is, and not by its inode alone."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final, NamedTuple

from krepair.durable.tree import Tree, named
from krepair.errors import StalePlanError
from krepair.formats.damage import Damage
from krepair.formats.filenames import META_PROPERTIES
from krepair.formats.meta_properties import decode
from krepair.journal.record import Here
from krepair.plan.model import Plan

_MOST_META_BYTES: Final = 1 << 20


class Located(NamedTuple):
    """The directory of a plan, as it is here.

    Attributes:
        plan: with host and inode as they are here; else the one that was given.
        here: the directory.
        is_plans: whether host, path and inode are those of the plan. Every ext4 file system has the same inode for its
            root, so this alone proves nothing.
        others: absolute paths of other directories that hold a journal of the plan; only if ``--at`` names this one.
    """

    plan: Plan
    here: Here
    is_plans: bool
    others: tuple[str, ...] = ()


def here_of(log_dir: str, plan_digest: str) -> Here:
    """What a log directory is known by.

    Args:
        log_dir: absolute path.
        plan_digest: of the plan whose journals will say so; may be empty.

    Raises:
        OSError: it could not be looked at.
    """
    with Tree(log_dir) as tree:
        folder = tree.open_folder(log_dir)
        try:
            with named(log_dir):
                file_system, inode = os.fstatvfs(folder).f_fsid, os.fstat(folder).st_ino
        finally:
            os.close(folder)
        data = None
        with contextlib.suppress(OSError):  # no regular file: then nothing is known of the broker
            data = tree.read(f"{log_dir}/{META_PROPERTIES}", _MOST_META_BYTES)
    meta = decode(data) if data is not None else None
    known = None if meta is None or isinstance(meta, Damage) else meta
    return Here(
        host=socket.gethostname(),
        log_dir=log_dir,
        file_system=f"{file_system:x}",
        inode=inode,
        cluster_id="" if known is None else known.cluster_id,
        broker_id="" if known is None else known.broker_id,
        directory_id="" if known is None else known.directory_id,
        plan_digest=plan_digest,
    )


def check_broker(here: Here, cluster_id: str, broker_id: str, directory_id: str, *, exact: bool) -> None:
    """Checks that a directory is of the broker and cluster that a plan or a journal names.

    Args:
        here: the directory.
        cluster_id: as it was; empty if it was not known.
        broker_id: likewise.
        directory_id: likewise.
        exact: whether what was known has to be known here, too: in a directory that may be another one.

    Raises:
        StalePlanError: it is not; nothing was changed.
    """
    for what, was, now in (
        ("cluster.id", cluster_id, here.cluster_id),
        ("broker.id", broker_id, here.broker_id),
        ("directory.id", directory_id, here.directory_id),
    ):
        if was and was != now and (now or exact):
            raise StalePlanError(
                f"{here.log_dir}/{META_PROPERTIES}: {what} is {now or 'not there'}, the plan was made of the directory "
                f"with {was}; nothing was changed"
            )
