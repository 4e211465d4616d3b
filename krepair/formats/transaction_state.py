"""Records of ``__transaction_state``: the state of transactional ids, written by the transaction coordinator.

Source: ``TransactionLogValue.json`` (version 0 up to 3.7; version 1, flexible, since 3.8: KIP-915, KIP-890),
``TransactionLog`` and ``TransactionState`` (2.2.1, 3.9.2, 4.3.1).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from krepair.formats.coordinator_record import RecordTable
from krepair.formats.field_lists import read_messages
from krepair.formats.filenames import TRANSACTIONS_TOPIC
from krepair.formats.message_schema import front

MESSAGES: Final = """\
transaction_state key 0 api_key=0
  transactional_id string | transactional id
transaction_state value 0-1 flexible=1+
  producer_id                          int64                        | producer id that the transactional id uses
  previous_producer_id                 int64    1+ tag=0 default=-1 | producer id of the last committed transaction
  next_producer_id                     int64    1+ tag=1 default=-1 | producer id that the producer received last
  producer_epoch                       int16                        | epoch of the producer id
  next_producer_epoch                  int16    1+ tag=3 default=-1 | epoch of the next producer id
  transaction_timeout_ms               int32                        | transaction timeout in ms
  transaction_status                   int8                         | state of the transaction, by its number
  transaction_partitions               []struct nullable=0+         | partitions of the transaction
    topic         string  | topic
    partition_ids []int32 | partitions
  transaction_last_update_timestamp_ms int64                        | time of the last update in ms
  transaction_start_timestamp_ms       int64                        | time of the start in ms, -1 without a transaction
  client_transaction_version           int16    1+ tag=2 default=0  | transaction version of the client
"""

_MESSAGES: Final = read_messages(MESSAGES)
VALUE: Final = _MESSAGES["transaction_state value"]
RECORDS: Final = RecordTable(TRANSACTIONS_TOPIC, _MESSAGES)

PRODUCER_ID: Final = front(VALUE, "producer_id")
"""Common start of all versions: the version and the producer id."""


class TransactionStatus(IntEnum):
    """Kafka's ids of transaction states."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


IN_PROGRESS: Final = frozenset(
    {
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_COMMIT,
        TransactionStatus.PREPARE_ABORT,
        TransactionStatus.PREPARE_EPOCH_FENCE,
    }
)
"""States of a transaction that has begun and whose markers are not all written."""


def state_name(status: int) -> str:
    """Return Kafka's name of a ``transaction_status``; ``unknown (N)`` for an unknown number."""
    if status not in TransactionStatus.__members__.values():
        return f"unknown ({status})"
    return "".join(word.capitalize() for word in TransactionStatus(status).name.split("_"))
