"""The classes of batches, and the layout of the scan kernel's state.

Every number on which a kernel and its wrapper must agree is named here once. ``krepair.rules`` turns classes into
reasons.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

# Classes of batches. ``rules.reasons`` explains them; batches and bytes are counted by class.
RECORDS: Final = 0  # has records that are kept
MARKER_DATA_REMAINS: Final = 1  # marker whose transaction still has a batch in the log
MARKER_UNSTAMPED: Final = 2  # marker without data, in a batch without a delete horizon
MARKER_STAMP_TO_COME: Final = 3  # marker without data, before its batch's delete horizon
MARKER_STAMP_PAST: Final = 4  # marker without data, past its batch's delete horizon
MARKER_EPOCH: Final = 5  # marker without data that an active producer needs for its epoch
CONTROL_OTHER: Final = 6  # control batch that is neither COMMIT nor ABORT
EMPTIED: Final = 7  # data batch without records that nobody needs
EMPTIED_PRODUCER: Final = 8  # data batch without records that an active producer needs
EMPTIED_MARKER: Final = 9  # control batch without its record
LAST_EMPTIED_NOW: Final = 10  # last batch, which loses its record and is kept as an empty batch
EMPTIED_LAST: Final = 11  # last batch, which had no records before
MARKER_HELD: Final = 12  # marker without data that is kept for other replicas
CLASS_COUNT: Final = 13

# Columns of the counts by class.
T_BATCHES: Final = 0
T_BYTES: Final = 1
T_RECORDS: Final = 2
TALLY_COLUMNS: Final = 3

# Status with which the call for a window ends.
NEED_BYTES: Final = 0
TABLE_FULL: Final = 1
EPOCHS_FULL: Final = 2
OUTPUT_FULL: Final = 3
HUGE: Final = 4
OLD_FORMAT: Final = 5
DAMAGE: Final = 6
NEW_FORMAT: Final = 7

# Kinds of damage, see ``rules.damage`` and the texts in ``kernels.scan``.
D_NONE: Final = 0
D_LENGTH: Final = 1
D_PAST_END: Final = 2
D_MAGIC: Final = 3
D_CRC: Final = 4
D_OFFSET_ORDER: Final = 5
D_OFFSET_RANGE: Final = 6
D_COUNTS: Final = 7
D_CONTROL: Final = 8
D_ZEROS: Final = 9
D_TORN: Final = 10
D_OLD_LENGTH: Final = 11
D_OLD_CRC: Final = 12

# Elements of the scan state, an array that callers carry from window to window.
S_PLACE: Final = 0  # place of the next batch in the window
S_ORIGIN: Final = 1  # file position of place 0
S_BATCHES: Final = 2
S_LAST_OFFSET: Final = 3
S_FIRST_OFFSET: Final = 4
S_MAX_TIMESTAMP: Final = 5
S_OFFSET_OF_MAX: Final = 6
S_HEADERS_1: Final = 7
S_HEADERS_2: Final = 8
S_DECISIONS: Final = 9
S_ROWS: Final = 10
S_EPOCHS: Final = 11
S_STAMPED: Final = 12
S_LARGEST_BATCH: Final = 13
S_ABORTS_UNINDEXED: Final = 14
S_MIN_UNREPLICATED: Final = (
    15  # lowest first offset of a transaction whose marker is at or above the high watermark
)
S_ENTRY: Final = 16  # next entry of the transaction index
S_KEEP: Final = 17  # next entry of keep_positions
S_LAST_POSITION: Final = 18
S_LAST_SIZE: Final = 19
S_LAST_CLASS: Final = 20
S_LAST_LEADER_EPOCH: Final = 21
S_DAMAGE: Final = 22
S_DAMAGE_FOUND: Final = 23
S_HUGE_OK: Final = 24  # position of a batch whose CRC was checked piecewise, else -1
S_STARTS: Final = 26
S_MIN_TIMESTAMP: Final = 27
S_OLD_BATCHES: Final = 29
S_OLD_POSITION: Final = 30  # position of the first message of v0 or v1, if there is one
S_LAST_OLD_POSITION: Final = 31  # position of the last one
STATE_SIZE: Final = 32

# Inputs of a scan, which do not change between windows.
I_CHECK_CRC: Final = 0
I_NOW_MS: Final = 1
I_HIGH_WATERMARK: Final = 2
I_BASE_OFFSET: Final = 3
I_FILE_SIZE: Final = 4
I_STAGE: Final = 5  # 1 to return the start and class of each batch
I_CRC_MASK: Final = 6  # mask of the header word with the CRC, for the digest of headers
I_LAST_POSITION: Final = 7
INPUT_SIZE: Final = 8

# Columns of a producer's row. Most batches touch only the first sixteen, which are two cache lines. ``LEAD`` is the
# producer's first marker in the segment, ``NEXT`` its first marker after its last data batch.
P_ID: Final = 0
P_EPOCH: Final = 1
P_MARKERS: Final = 2
P_OPEN_FIRST: Final = 3  # first offset of the open transaction, -1 none
P_OPEN_KEPT: Final = 4  # 1 if a batch of that transaction in this segment still has records
P_OPEN_KEPT_NOW: Final = (
    5  # 1 if a batch of that transaction is kept, even without records (``keep_positions``)
)
P_TIMESTAMP: Final = 6
P_FREE_MARKERS: Final = 7  # control batches of the current epoch, removable after their delete horizon
P_LAST_DATA_POSITION: Final = 8
P_LAST_DATA_OFFSET: Final = 9  # last offset of the last data batch of the current epoch, -1 none
P_NEXT_POSITION: Final = 10  # position of the first marker after the last data batch
P_PROTECTED_EPOCH: Final = 11
P_CARRIED: Final = 12
P_COORDINATOR_EPOCH: Final = 13
P_LAST_DATA_EMPTIED: Final = 14
P_LAST_SEQUENCE: Final = 15
P_FIRST_EPOCH: Final = 16
P_EPOCHS_MIXED: Final = 17
P_LEAD_POSITION: Final = (
    18  # position of the first marker in the segment, whose transaction may begin earlier
)
P_LEAD_CLASS: Final = 19
P_LEAD_SIZE: Final = 20
P_LEAD_OFFSET: Final = 21
P_LEAD_ENTRY: Final = 22
P_LEAD_KEPT: Final = 23
P_LEAD_FIRST: Final = 24
P_LEAD_ABORT: Final = 25
P_NEXT_CLASS: Final = 26
P_NEXT_SIZE: Final = 27
P_NEXT_ENTRY: Final = 28
P_NEXT_ABORT: Final = 29
P_NEXT_KEPT: Final = 30
P_LAST_DATA_DELTA: Final = 31
P_PLAIN_EPOCH: Final = (
    32  # epoch of which the next marker only changes counts; NO_PLAIN_EPOCH if there is none
)
P_PLAIN_MARKERS: Final = 33  # number of such markers, not yet added to P_MARKERS and P_FREE_MARKERS
P_LAST_DATA_TIMESTAMP: Final = 34  # timestamp of the last data batch of the current epoch, -1 none
P_SPANS_EPOCHS: Final = (
    35  # offset of the first batch that continues a transaction under another epoch, -1 none
)
ROW_SIZE: Final = 40

NO_PLAIN_EPOCH: Final = -(1 << 62)

# Columns of a run of batches with one leader epoch.
L_EPOCH: Final = 0
L_OFFSET: Final = 1  # base offset of its first batch
L_BEFORE: Final = 2  # last offset of the batch before the first one
L_BATCHES: Final = 3  # number of batches before the first one in the segment
L_POSITION: Final = 4
EPOCH_SIZE: Final = 5

# What the log shows for an entry of the transaction index: no such marker, a marker whose transaction has no data left,
# a marker with data, or a marker of another producer.
ENTRY_NO_MARKER: Final = 0
ENTRY_NO_DATA: Final = 1
ENTRY_DATA: Final = 2
ENTRY_OTHER_PRODUCER: Final = 3

Tallies = np.ndarray[Any, np.dtype[np.int64]]


def no_tallies() -> Tallies:
    """Return tallies of zero: int64[CLASS_COUNT, TALLY_COLUMNS]."""
    return np.zeros((CLASS_COUNT, TALLY_COLUMNS), np.int64)
