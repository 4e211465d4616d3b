"""The parts that both readers of offset checkpoints need: an entry, and the form of the first two lines.

``checkpoint`` reads single lines, ``offset_lines`` reads columns of large files.

Source: ``CheckpointFile``, ``OffsetCheckpointFile.scala`` (2.2.1, 3.9.0).
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_ENTRIES = 1_000_000
# With so few digits the number cannot overflow, and there is no white space except what a broker writes.
AS_WRITTEN_HEAD = re.compile(rb"0\n([0-9]{1,9})\n")
AS_WRITTEN_HEAD_BYTES = 12


class CheckpointEntry(NamedTuple):
    """One line of an offset checkpoint.

    Attributes:
        topic: topic name.
        partition: partition number.
        offset: recovery point, high watermark, cleaner offset or log start offset, depending on the file.
    """

    topic: str
    partition: int
    offset: int
