"""The leader epochs of one replica by its ``leader-epoch-checkpoint``.

Source: LeaderEpochFileCache (4.3.1), KIP-101, KIP-279.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats.arrays import Int64s
from krepair.formats.checkpoint import decode_epochs
from krepair.logdir.reading import read_whole
from krepair.pipeline.items import Place
from krepair.rules.replicas.epochs import START_COLUMNS

_FILE_AT_MOST: Final = 64 << 20


def read_epoch_starts(place: Place, tree: Tree) -> Int64s:
    """int64[M, 2] (leader epoch, start offset) of ``leader-epoch-checkpoint``; no row if there is no such file.

    Raises:
        OSError: it cannot be read, or is larger than any broker writes it.
    """
    try:
        data = read_whole(f"{place.path}/leader-epoch-checkpoint", _FILE_AT_MOST, tree)
    except FileNotFoundError:
        return np.empty((0, START_COLUMNS), np.int64)
    rows = [tuple(entry) for entry in decode_epochs(data).entries]
    return np.array(rows, np.int64).reshape(-1, START_COLUMNS)
