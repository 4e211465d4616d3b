"""Records of ``__share_group_state``: the progress of share groups in their partitions (KIP-932).

Source: ``share-coordinator/src/main/resources/common/message`` (4.3).
"""

from __future__ import annotations

from typing import Final

from krepair.formats.coordinator_record import RecordTable
from krepair.formats.field_lists import read_messages

TOPIC: Final = "__share_group_state"

MESSAGES: Final = """\
struct StateBatch
  first_offset   int64 | offset of the first record
  last_offset    int64 | offset of the last record
  delivery_state int8  | 0 available, 2 acknowledged, 4 archived
  delivery_count int16 | number of deliveries
share_snapshot key 0 api_key=0
  group_id  string | share group
  topic_id  uuid   | topic id
  partition int32  | partition
share_snapshot value 0 flexible=0+
  snapshot_epoch          int32                         | epoch of this snapshot
  state_epoch             int32                         | state epoch
  leader_epoch            int32                         | leader epoch of the partition
  start_offset            int64                         | first offset that is not done
  delivery_complete_count int32        tag=0 default=-1 | number of records done above the start offset
  create_timestamp        int64                         | time of creation in ms
  write_timestamp         int64                         | time of the write in ms
  state_batches           []StateBatch                  | ranges of records in flight
share_update key 0 api_key=1
  group_id  string | share group
  topic_id  uuid   | topic id
  partition int32  | partition
share_update value 0 flexible=0+
  snapshot_epoch          int32                         | epoch of the snapshot that this update continues
  leader_epoch            int32                         | leader epoch of the partition
  start_offset            int64                         | first offset that is not done
  delivery_complete_count int32        tag=0 default=-1 | number of records done above the start offset
  state_batches           []StateBatch                  | ranges of records in flight
"""

RECORDS: Final = RecordTable(TOPIC, read_messages(MESSAGES))
