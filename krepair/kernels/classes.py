"""The classes of batches, and the layout of the scan kernel's state.

Every number on which a kernel and its wrapper must agree is named here once. ``krepair.rules`` turns classes into
reasons.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

# classes of batches; tallies are kept per class
RECORDS: Final = 0
MARKER_DATA_REMAINS: Final = 1
MARKER_UNSTAMPED: Final = 2
MARKER_STAMP_TO_COME: Final = 3
MARKER_STAMP_PAST: Final = 4
MARKER_EPOCH: Final = 5
CONTROL_OTHER: Final = 6
EMPTIED: Final = 7
EMPTIED_PRODUCER: Final = 8
EMPTIED_MARKER: Final = 9
LAST_EMPTIED_NOW: Final = 10
EMPTIED_LAST: Final = 11
MARKER_HELD: Final = 12
CLASS_COUNT: Final = 13

# columns of a tally
T_BATCHES: Final = 0
T_BYTES: Final = 1
T_RECORDS: Final = 2
TALLY_COLUMNS: Final = 3

# how the call for a window ended
NEED_BYTES: Final = 0
TABLE_FULL: Final = 1
EPOCHS_FULL: Final = 2
OUTPUT_FULL: Final = 3
HUGE: Final = 4
OLD_FORMAT: Final = 5
DAMAGE: Final = 6
NEW_FORMAT: Final = 7

# kinds of damage
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

# scalars of the scan state (int64)
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
S_OLD_POSITION: Final = 30  # of the first message of v0 or v1, if there is one
STATE_SIZE: Final = 32

# inputs of a scan (int64)
I_CHECK_CRC: Final = 0
I_NOW_MS: Final = 1
I_HIGH_WATERMARK: Final = 2
I_BASE_OFFSET: Final = 3
I_FILE_SIZE: Final = 4
I_STAGE: Final = 5  # 1: note runs to keep and starts of batches
I_CRC_MASK: Final = 6  # of the header word with the CRC, for the digest of headers
I_LAST_POSITION: Final = 7
INPUT_SIZE: Final = 8

# columns of a producer's row (int64); most batches touch only the first sixteen, which are two cache lines
P_ID: Final = 0
P_EPOCH: Final = 1
P_MARKERS: Final = 2
P_OPEN_FIRST: Final = 3  # first offset of the open transaction, -1 none
P_OPEN_KEPT: Final = 4  # whether a batch of that transaction in this segment still has records
P_OPEN_KEPT_NOW: Final = 5  # whether a batch of it stays: emptied ones at ``keep_positions`` count too
P_TIMESTAMP: Final = 6
P_FREE_MARKERS: Final = 7  # control batches of the current epoch that may go after their delete horizon
P_LAST_DATA_POSITION: Final = 8
P_LAST_DATA_OFFSET: Final = 9  # of the current epoch, -1 none
P_NEXT_POSITION: Final = 10  # first marker after the last data batch
P_PROTECTED_EPOCH: Final = 11
P_CARRIED: Final = 12
P_COORDINATOR_EPOCH: Final = 13
P_LAST_DATA_EMPTIED: Final = 14
P_LAST_SEQUENCE: Final = 15
P_FIRST_EPOCH: Final = 16
P_EPOCHS_MIXED: Final = 17
P_LEAD_POSITION: Final = 18  # first marker of the segment: its transaction may begin earlier
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
P_PLAIN_EPOCH: Final = 32  # a marker of this epoch changes only counts; NO_PLAIN_EPOCH: none
P_PLAIN_MARKERS: Final = 33  # such markers, not yet counted in P_MARKERS and P_FREE_MARKERS
P_LAST_DATA_TIMESTAMP: Final = 34  # timestamp of the last data batch of the current epoch, -1 none
P_SPANS_EPOCHS: Final = 35  # first batch that goes on with a transaction under another epoch, -1 none
ROW_SIZE: Final = 40

NO_PLAIN_EPOCH: Final = -(1 << 62)

# columns of a change of the leader epoch (int64)
L_EPOCH: Final = 0
L_OFFSET: Final = 1  # base offset of its first batch
L_BEFORE: Final = 2  # last offset of the batch before
L_BATCHES: Final = 3  # number of batches before it in the segment
L_POSITION: Final = 4
EPOCH_SIZE: Final = 5

# what became of an entry of the transaction index
ENTRY_NO_MARKER: Final = 0
ENTRY_NO_DATA: Final = 1
ENTRY_DATA: Final = 2
ENTRY_OTHER_PRODUCER: Final = 3

Tallies = np.ndarray[Any, np.dtype[np.int64]]


def no_tallies() -> Tallies:
    """Return tallies of zero: int64[CLASS_COUNT, TALLY_COLUMNS]."""
    return np.zeros((CLASS_COUNT, TALLY_COLUMNS), np.int64)
