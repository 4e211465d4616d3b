"""Every task that a worker can run, by name. What a task needs is loaded where it runs, not where it is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_type_hints

import msgspec

from krepair.pipeline.items import WorkItem

if TYPE_CHECKING:
    from krepair.pipeline.compaction.check_items import (
        AbortsItem,
        AbortsResult,
        CheckItem,
        CheckJoinItem,
        CheckJoinResult,
        CheckResult,
    )
    from krepair.pipeline.compaction.items import (
        AbortedResult,
        CompactItem,
        CompactResult,
        JoinItem,
        JoinResult,
        KeysItem,
        KeysResult,
    )
    from krepair.pipeline.compaction.stage_items import CompactStageItem, CompactStageResult
    from krepair.pipeline.contents import ContentResult
    from krepair.pipeline.coordinators.groups import GroupsItem, GroupsResult
    from krepair.pipeline.coordinators.states import StatesItem, StatesResult
    from krepair.pipeline.coordinators.transactions import TransactionsItem, TransactionsResult
    from krepair.pipeline.damage import MapItem, MapResult, MendedItem, MendedResult
    from krepair.pipeline.indexes.segment import InspectItem, InspectResult, MendItems, MendResults
    from krepair.pipeline.indexes.transactions import TxnItem, TxnResult
    from krepair.pipeline.items import (
        FinishItem,
        FinishResult,
        LogItem,
        LogsItem,
        Outcome,
        ScanItem,
        ScanResult,
        StageItem,
        VerifyItem,
        VerifyResult,
    )
    from krepair.pipeline.large_records import LargeRecordItem, LargeRecordResult
    from krepair.pipeline.readings.aborted import AbortedItem, AbortedReading
    from krepair.pipeline.readings.checkpoints import LogEnd, LogEndItem
    from krepair.pipeline.readings.closed_snapshots import ClosedSnapshotItem
    from krepair.pipeline.readings.epochs import EpochsItem
    from krepair.pipeline.readings.logs import GoneItem, MendedLogItem
    from krepair.pipeline.readings.partition import Reading
    from krepair.pipeline.readings.recovered import RecoveredItem
    from krepair.pipeline.readings.snapshots import SnapshotItem
    from krepair.pipeline.recover import MadeResult, MakeItem
    from krepair.pipeline.rehearse import RehearseItem, RehearseResult
    from krepair.pipeline.replicas.evidence_check import (
        MarkersGoneItem,
        MarkersGoneResult,
        NeededItem,
    )
    from krepair.pipeline.replicas.find_keys import FindItem, FindResult
    from krepair.pipeline.replicas.holdings import HeldItem, HeldResult, MarkersItem, MarkersResult
    from krepair.pipeline.replicas.items import HeadersPart, ReplicaItem, RowsResult
    from krepair.pipeline.rewrite.compare import OriginalsItem, OriginalsResult
    from krepair.pipeline.same_batches import TwoLogsItem, TwoLogsResult
    from krepair.pipeline.scan_and_indexes import LookItem, LookResult
    from krepair.pipeline.swaps import StageSwapItem, SwapItem, SwapResult, VerifySwapItem, VerifySwapResult

Item = TypeVar("Item", bound=WorkItem)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Task(Generic[Item, Result]):
    """A function that a worker can run. What travels is of the types that the function names.

    Attributes:
        name: by which a worker knows it.
        where: ``module:function``, below ``krepair.pipeline``, so that no layer above can be named.
        shown: one or two words for a person who watches it run.
    """

    name: str
    where: str
    shown: str

    @property
    def run(self) -> Callable[[Item], Result]:
        """The function; its module is loaded by the first that asks."""
        module, _, function = self.where.partition(":")
        return cast(
            "Callable[[Item], Result]", getattr(import_module(f"krepair.pipeline.{module}"), function)
        )

    @cached_property
    def item(self) -> type[Item]:
        """What the function takes."""
        hints = get_type_hints(self.run)
        return cast("type[Item]", next(hints[name] for name in hints if name != "return"))

    @cached_property
    def result(self) -> type[Result]:
        """What the function gives back."""
        return cast("type[Result]", get_type_hints(self.run)["return"])


# The types are held against the functions by tests/meta/test_jobs.py.
SCAN: Task[ScanItem, ScanResult] = Task("scan", "scan:scan", "scan")
STAGE: Task[StageItem, ScanResult] = Task("stage", "rewrite.stage:stage", "stage")
FINISH: Task[FinishItem, FinishResult] = Task("finish", "rewrite.finish:finish", "verify")
VERIFY: Task[VerifyItem, VerifyResult] = Task("verify", "rewrite.verify:verify_segment", "verify")
LOOK: Task[LookItem, LookResult] = Task("look", "scan_and_indexes:look", "scan")
INSPECT: Task[InspectItem, InspectResult] = Task("inspect", "indexes.segment:inspect", "indexes")
MEND: Task[MendItems, MendResults] = Task("mend", "indexes.segment:mend", "indexes")
INSPECT_TXN: Task[TxnItem, TxnResult] = Task(
    "inspect txn", "indexes.transactions:inspect_txn", "transactions"
)
VERIFY_MENDED: Task[MendItems, MendResults] = Task("verify mended", "indexes.segment:verify_mended", "verify")
MAP_DAMAGE: Task[MapItem, MapResult] = Task("map damage", "damage:map_damage", "damage")
REHEARSE: Task[RehearseItem, RehearseResult] = Task("rehearse", "rehearse:rehearse", "next start")
MAKE_MENDED: Task[MendedItem, MendedResult] = Task("make mended", "damage:mended", "damage")
READ_CONTENTS: Task[LogItem, ContentResult] = Task("read contents", "contents:read_contents", "content")
FIND_LARGE_RECORD: Task[LargeRecordItem, LargeRecordResult] = Task(
    "find large record", "large_records:find_large_record", "content"
)
READ_GROUPS: Task[GroupsItem, GroupsResult] = Task("read groups", "coordinators.groups:read_groups", "groups")
READ_TRANSACTIONS: Task[TransactionsItem, TransactionsResult] = Task(
    "read transactions", "coordinators.transactions:read_transactions", "transactions"
)
LOOK_AT_SWAP: Task[SwapItem, SwapResult] = Task("look at swap", "swaps:look_at_swap", "swaps")
STAGE_SWAP: Task[StageSwapItem, Outcome] = Task("stage swap", "swaps:stage_swap", "swaps")
VERIFY_SWAP: Task[VerifySwapItem, VerifySwapResult] = Task("verify swap", "swaps:verify_swap", "verify")
COMPARE_TWO_LOGS: Task[TwoLogsItem, TwoLogsResult] = Task(
    "compare two logs", "same_batches:compare_two_logs", "compare"
)
FIND_STATES: Task[StatesItem, StatesResult] = Task(
    "find states", "coordinators.states:find_states", "transactions"
)
VERIFY_EPOCHS: Task[EpochsItem, Reading] = Task("verify epochs", "readings.epochs:verify_epochs", "verify")
VERIFY_SNAPSHOT: Task[SnapshotItem, Reading] = Task(
    "verify snapshot", "readings.snapshots:verify_snapshot", "verify"
)
VERIFY_CLOSED_SNAPSHOT: Task[ClosedSnapshotItem, Reading] = Task(
    "verify closed snapshot", "readings.closed_snapshots:verify_closed_snapshot", "verify"
)
VERIFY_ABORTED: Task[AbortedItem, AbortedReading] = Task(
    "verify aborted", "readings.aborted:verify_aborted", "verify"
)
VERIFY_MENDED_LOG: Task[MendedLogItem, Reading] = Task(
    "verify mended log", "readings.logs:verify_mended_log", "verify"
)
COMPARE_ORIGINALS: Task[OriginalsItem, OriginalsResult] = Task(
    "compare originals", "rewrite.compare:compare_originals", "verify"
)
VERIFY_GONE: Task[GoneItem, Reading] = Task("verify gone", "readings.logs:verify_gone", "verify")
READ_LOG_END: Task[LogEndItem, LogEnd] = Task("read log end", "readings.checkpoints:read_log_end", "verify")
READ_RECOVERED: Task[RecoveredItem, Reading] = Task(
    "read recovered", "readings.recovered:read_recovered", "read again"
)
MAKE_RECOVERED: Task[MakeItem, MadeResult] = Task("make recovered", "recover:make_recovered", "read again")
FIND_ABORTED: Task[LogsItem, AbortedResult] = Task(
    "find aborted", "compaction.tasks:find_aborted", "transactions"
)
FIND_KEYS: Task[KeysItem, KeysResult] = Task("find keys", "compaction.tasks:find_keys", "keys")
JOIN_KEYS: Task[JoinItem, JoinResult] = Task("join keys", "compaction.tasks:join_keys", "join")
COMPACT: Task[CompactItem, CompactResult] = Task("compact", "compaction.tasks:compact", "records")
STAGE_COMPACTED: Task[CompactStageItem, CompactStageResult] = Task(
    "stage compacted", "compaction.tasks:stage_compacted", "stage"
)
FIND_ABORT_RANGES: Task[AbortsItem, AbortsResult] = Task(
    "find abort ranges", "compaction.check:find_abort_ranges", "prove"
)
CHECK_KEYS: Task[CheckItem, CheckResult] = Task("check keys", "compaction.check:check_group", "prove")
CHECK_JOIN: Task[CheckJoinItem, CheckJoinResult] = Task(
    "check join", "compaction.check_join:check_join", "prove"
)
FIND_HELD: Task[HeldItem, HeldResult] = Task("find held", "replicas.holdings:find_held", "replicas")
FIND_MARKERS_TO_KEEP: Task[MarkersItem, MarkersResult] = Task(
    "find markers to keep", "replicas.holdings:find_markers_to_keep", "markers"
)
FIND_MARKERS_GONE: Task[MarkersGoneItem, MarkersGoneResult] = Task(
    "find markers gone", "replicas.evidence_check:find_markers_gone", "prove"
)
FIND_NEEDED: Task[NeededItem, Outcome] = Task("find needed", "replicas.evidence_check:find_needed", "prove")
READ_REPLICA_HEADERS: Task[ReplicaItem, HeadersPart] = Task(
    "read replica headers", "replicas.headers:read_headers", "headers"
)
READ_REPLICA_RECORDS: Task[ReplicaItem, RowsResult] = Task(
    "read replica records", "replicas.records:read_records", "records"
)
FIND_REPLICA_KEYS: Task[FindItem, FindResult] = Task(
    "find replica keys", "replicas.find_keys:find_keys", "keys"
)

TASKS: dict[str, Task[Any, Any]] = {
    task.name: task for task in tuple(globals().values()) if isinstance(task, Task)
}


def run_encoded(name: str, item: bytes) -> bytes:
    """Run one task on an item as it travels: MessagePack in, MessagePack out."""
    task = TASKS[name]
    return msgspec.msgpack.encode(task.run(msgspec.msgpack.decode(item, type=task.item)))
