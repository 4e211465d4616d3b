"""Every task that a worker can run, by name, with the types that travel: what an engine needs to know of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from krepair.pipeline import (
    compaction_check,
    compaction_tasks,
    compare,
    contents,
    coordinator_states,
    damage,
    groups,
    indexes,
    key_census,
    look,
    rehearse,
    swaps,
    tasks,
    transactions,
    two_logs,
    txn_indexes,
    verify,
)
from krepair.pipeline.compaction_check import (
    AbortsItem,
    AbortsResult,
    CheckItem,
    CheckJoinItem,
    CheckJoinResult,
    CheckResult,
)
from krepair.pipeline.compaction_items import (
    AbortedResult,
    CompactItem,
    CompactResult,
    CompactStageItem,
    FindAbortedItem,
    JoinItem,
    JoinResult,
    KeysItem,
    KeysResult,
)
from krepair.pipeline.compare import OriginalsItem, OriginalsResult
from krepair.pipeline.contents import ContentItem, ContentResult
from krepair.pipeline.coordinator_states import StatesItem, StatesResult
from krepair.pipeline.damage import MapItem, MapResult, MendedItem, MendedResult
from krepair.pipeline.groups import GroupsItem, GroupsResult
from krepair.pipeline.indexes import InspectItem, InspectResult, MendItems, MendResults
from krepair.pipeline.items import (
    FinishItem,
    FinishResult,
    ScanItem,
    ScanResult,
    StageItem,
    VerifyItem,
    VerifyResult,
)
from krepair.pipeline.key_census import CensusItem, CensusResult
from krepair.pipeline.look import LookItem, LookResult
from krepair.pipeline.readings import aborted, checkpoints, epochs, logs, recovered, snapshots
from krepair.pipeline.readings.aborted import AbortedItem
from krepair.pipeline.readings.checkpoints import LogEnd, LogEndItem
from krepair.pipeline.readings.epochs import EpochsItem
from krepair.pipeline.readings.logs import GoneItem, MendedLogItem
from krepair.pipeline.readings.partition import Reading
from krepair.pipeline.readings.recovered import RecoveredItem
from krepair.pipeline.readings.snapshots import SnapshotItem
from krepair.pipeline.rehearse import RehearseItem, RehearseResult
from krepair.pipeline.swaps import StageSwapItem, SwapItem, SwapOutcome, SwapResult, VerifySwapItem
from krepair.pipeline.transactions import TransactionsItem, TransactionsResult
from krepair.pipeline.two_logs import TwoLogsItem, TwoLogsResult
from krepair.pipeline.txn_indexes import TxnItem, TxnResult

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Task(Generic[Item, Result]):
    """A function that a worker can run, with the types that travel."""

    name: str
    item: type[Item]
    result: type[Result]
    run: Callable[[Item], Result]


SCAN = Task("scan", ScanItem, ScanResult, tasks.scan)
STAGE = Task("stage", StageItem, ScanResult, tasks.stage)
FINISH = Task("finish", FinishItem, FinishResult, tasks.finish)
VERIFY = Task("verify", VerifyItem, VerifyResult, verify.verify_segment)
LOOK = Task("look", LookItem, LookResult, look.look)
INSPECT = Task("inspect", InspectItem, InspectResult, indexes.inspect)
MEND = Task("mend", MendItems, MendResults, indexes.mend)
INSPECT_TXN = Task("inspect txn", TxnItem, TxnResult, txn_indexes.inspect_txn)
VERIFY_MENDED = Task("verify mended", MendItems, MendResults, indexes.verify_mended)
MAP_DAMAGE = Task("map damage", MapItem, MapResult, damage.map_damage)
REHEARSE = Task("rehearse", RehearseItem, RehearseResult, rehearse.rehearse)
MAKE_MENDED = Task("make mended", MendedItem, MendedResult, damage.mended)
READ_CONTENTS = Task("read contents", ContentItem, ContentResult, contents.read_contents)
READ_GROUPS = Task("read groups", GroupsItem, GroupsResult, groups.read_groups)
READ_TRANSACTIONS = Task(
    "read transactions", TransactionsItem, TransactionsResult, transactions.read_transactions
)
LOOK_AT_SWAP = Task("look at swap", SwapItem, SwapResult, swaps.look_at_swap)
STAGE_SWAP = Task("stage swap", StageSwapItem, SwapOutcome, swaps.stage_swap)
VERIFY_SWAP = Task("verify swap", VerifySwapItem, SwapOutcome, swaps.verify_swap)
COMPARE_TWO_LOGS = Task("compare two logs", TwoLogsItem, TwoLogsResult, two_logs.compare_two_logs)
FIND_STATES = Task("find states", StatesItem, StatesResult, coordinator_states.find_states)
VERIFY_EPOCHS = Task("verify epochs", EpochsItem, Reading, epochs.verify_epochs)
VERIFY_SNAPSHOT = Task("verify snapshot", SnapshotItem, Reading, snapshots.verify_snapshot)
VERIFY_ABORTED = Task("verify aborted", AbortedItem, Reading, aborted.verify_aborted)
VERIFY_MENDED_LOG = Task("verify mended log", MendedLogItem, Reading, logs.verify_mended_log)
COMPARE_ORIGINALS = Task("compare originals", OriginalsItem, OriginalsResult, compare.compare_originals)
VERIFY_GONE = Task("verify gone", GoneItem, Reading, logs.verify_gone)
READ_LOG_END = Task("read log end", LogEndItem, LogEnd, checkpoints.read_log_end)
READ_RECOVERED = Task("read recovered", RecoveredItem, Reading, recovered.read_recovered)
FIND_ABORTED = Task("find aborted", FindAbortedItem, AbortedResult, compaction_tasks.find_aborted)
FIND_KEYS = Task("find keys", KeysItem, KeysResult, compaction_tasks.find_keys)
JOIN_KEYS = Task("join keys", JoinItem, JoinResult, compaction_tasks.join_keys)
COMPACT = Task("compact", CompactItem, CompactResult, compaction_tasks.compact)
STAGE_COMPACTED = Task("stage compacted", CompactStageItem, CompactResult, compaction_tasks.stage_compacted)
FIND_ABORT_RANGES = Task("find abort ranges", AbortsItem, AbortsResult, compaction_check.find_abort_ranges)
CHECK_KEYS = Task("check keys", CheckItem, CheckResult, compaction_check.check_group)
CHECK_JOIN = Task("check join", CheckJoinItem, CheckJoinResult, compaction_check.check_join)
TAKE_CENSUS = Task("take census", CensusItem, CensusResult, key_census.take_census)
TASKS: dict[str, Task[Any, Any]] = {
    task.name: task
    for task in (
        SCAN,
        STAGE,
        FINISH,
        VERIFY,
        LOOK,
        INSPECT,
        INSPECT_TXN,
        MEND,
        VERIFY_MENDED,
        MAP_DAMAGE,
        REHEARSE,
        MAKE_MENDED,
        READ_CONTENTS,
        READ_GROUPS,
        READ_TRANSACTIONS,
        LOOK_AT_SWAP,
        STAGE_SWAP,
        VERIFY_SWAP,
        COMPARE_TWO_LOGS,
        FIND_STATES,
        VERIFY_EPOCHS,
        VERIFY_SNAPSHOT,
        VERIFY_ABORTED,
        VERIFY_MENDED_LOG,
        COMPARE_ORIGINALS,
        VERIFY_GONE,
        READ_LOG_END,
        READ_RECOVERED,
        FIND_ABORTED,
        FIND_KEYS,
        JOIN_KEYS,
        COMPACT,
        STAGE_COMPACTED,
        FIND_ABORT_RANGES,
        CHECK_KEYS,
        CHECK_JOIN,
        TAKE_CENSUS,
    )
}


def run_encoded(name: str, item: bytes) -> bytes:
    """Run one task on an item as it travels: MessagePack in, MessagePack out."""
    task = TASKS[name]
    return msgspec.msgpack.encode(task.run(msgspec.msgpack.decode(item, type=task.item)))
