"""Every task that a worker can run, by name. What a task needs is loaded where it runs, not where it is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_type_hints

import msgspec

if TYPE_CHECKING:
    from krepair.pipeline.compaction.census import CensusItem, CensusResult
    from krepair.pipeline.compaction.check import (
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
        CompactStageItem,
        FindAbortedItem,
        JoinItem,
        JoinResult,
        KeysItem,
        KeysResult,
    )
    from krepair.pipeline.contents import ContentItem, ContentResult
    from krepair.pipeline.coordinators.groups import GroupsItem, GroupsResult
    from krepair.pipeline.coordinators.states import StatesItem, StatesResult
    from krepair.pipeline.coordinators.transactions import TransactionsItem, TransactionsResult
    from krepair.pipeline.damage import MapItem, MapResult, MendedItem, MendedResult
    from krepair.pipeline.indexes.segment import InspectItem, InspectResult, MendItems, MendResults
    from krepair.pipeline.indexes.transactions import TxnItem, TxnResult
    from krepair.pipeline.items import (
        FinishItem,
        FinishResult,
        ScanItem,
        ScanResult,
        StageItem,
        VerifyItem,
        VerifyResult,
    )
    from krepair.pipeline.look import LookItem, LookResult
    from krepair.pipeline.readings.aborted import AbortedItem
    from krepair.pipeline.readings.checkpoints import LogEnd, LogEndItem
    from krepair.pipeline.readings.epochs import EpochsItem
    from krepair.pipeline.readings.logs import GoneItem, MendedLogItem
    from krepair.pipeline.readings.partition import Reading
    from krepair.pipeline.readings.recovered import RecoveredItem
    from krepair.pipeline.readings.snapshots import SnapshotItem
    from krepair.pipeline.recover import MadeResult, MakeItem
    from krepair.pipeline.rehearse import RehearseItem, RehearseResult
    from krepair.pipeline.rewrite.compare import OriginalsItem, OriginalsResult
    from krepair.pipeline.swaps import StageSwapItem, SwapItem, SwapOutcome, SwapResult, VerifySwapItem
    from krepair.pipeline.two_logs import TwoLogsItem, TwoLogsResult

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Task(Generic[Item, Result]):
    """A function that a worker can run. What travels is of the types that the function names.

    Attributes:
        name: by which a worker knows it.
        where: ``module:function``, below ``krepair.pipeline``, so that no layer above can be named.
    """

    name: str
    where: str

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
SCAN: Task[ScanItem, ScanResult] = Task("scan", "scan:scan")
STAGE: Task[StageItem, ScanResult] = Task("stage", "rewrite.stage:stage")
FINISH: Task[FinishItem, FinishResult] = Task("finish", "rewrite.finish:finish")
VERIFY: Task[VerifyItem, VerifyResult] = Task("verify", "rewrite.verify:verify_segment")
LOOK: Task[LookItem, LookResult] = Task("look", "look:look")
INSPECT: Task[InspectItem, InspectResult] = Task("inspect", "indexes.segment:inspect")
MEND: Task[MendItems, MendResults] = Task("mend", "indexes.segment:mend")
INSPECT_TXN: Task[TxnItem, TxnResult] = Task("inspect txn", "indexes.transactions:inspect_txn")
VERIFY_MENDED: Task[MendItems, MendResults] = Task("verify mended", "indexes.segment:verify_mended")
MAP_DAMAGE: Task[MapItem, MapResult] = Task("map damage", "damage:map_damage")
REHEARSE: Task[RehearseItem, RehearseResult] = Task("rehearse", "rehearse:rehearse")
MAKE_MENDED: Task[MendedItem, MendedResult] = Task("make mended", "damage:mended")
READ_CONTENTS: Task[ContentItem, ContentResult] = Task("read contents", "contents:read_contents")
READ_GROUPS: Task[GroupsItem, GroupsResult] = Task("read groups", "coordinators.groups:read_groups")
READ_TRANSACTIONS: Task[TransactionsItem, TransactionsResult] = Task(
    "read transactions", "coordinators.transactions:read_transactions"
)
LOOK_AT_SWAP: Task[SwapItem, SwapResult] = Task("look at swap", "swaps:look_at_swap")
STAGE_SWAP: Task[StageSwapItem, SwapOutcome] = Task("stage swap", "swaps:stage_swap")
VERIFY_SWAP: Task[VerifySwapItem, SwapOutcome] = Task("verify swap", "swaps:verify_swap")
COMPARE_TWO_LOGS: Task[TwoLogsItem, TwoLogsResult] = Task("compare two logs", "two_logs:compare_two_logs")
FIND_STATES: Task[StatesItem, StatesResult] = Task("find states", "coordinators.states:find_states")
VERIFY_EPOCHS: Task[EpochsItem, Reading] = Task("verify epochs", "readings.epochs:verify_epochs")
VERIFY_SNAPSHOT: Task[SnapshotItem, Reading] = Task("verify snapshot", "readings.snapshots:verify_snapshot")
VERIFY_ABORTED: Task[AbortedItem, Reading] = Task("verify aborted", "readings.aborted:verify_aborted")
VERIFY_MENDED_LOG: Task[MendedLogItem, Reading] = Task("verify mended log", "readings.logs:verify_mended_log")
COMPARE_ORIGINALS: Task[OriginalsItem, OriginalsResult] = Task(
    "compare originals", "rewrite.compare:compare_originals"
)
VERIFY_GONE: Task[GoneItem, Reading] = Task("verify gone", "readings.logs:verify_gone")
READ_LOG_END: Task[LogEndItem, LogEnd] = Task("read log end", "readings.checkpoints:read_log_end")
READ_RECOVERED: Task[RecoveredItem, Reading] = Task("read recovered", "readings.recovered:read_recovered")
MAKE_RECOVERED: Task[MakeItem, MadeResult] = Task("make recovered", "recover:make_recovered")
FIND_ABORTED: Task[FindAbortedItem, AbortedResult] = Task("find aborted", "compaction.tasks:find_aborted")
FIND_KEYS: Task[KeysItem, KeysResult] = Task("find keys", "compaction.tasks:find_keys")
JOIN_KEYS: Task[JoinItem, JoinResult] = Task("join keys", "compaction.tasks:join_keys")
COMPACT: Task[CompactItem, CompactResult] = Task("compact", "compaction.tasks:compact")
STAGE_COMPACTED: Task[CompactStageItem, CompactResult] = Task(
    "stage compacted", "compaction.tasks:stage_compacted"
)
FIND_ABORT_RANGES: Task[AbortsItem, AbortsResult] = Task(
    "find abort ranges", "compaction.check:find_abort_ranges"
)
CHECK_KEYS: Task[CheckItem, CheckResult] = Task("check keys", "compaction.check:check_group")
CHECK_JOIN: Task[CheckJoinItem, CheckJoinResult] = Task("check join", "compaction.check:check_join")
TAKE_CENSUS: Task[CensusItem, CensusResult] = Task("take census", "compaction.census:take_census")

TASKS: dict[str, Task[Any, Any]] = {
    task.name: task for task in tuple(globals().values()) if isinstance(task, Task)
}


def run_encoded(name: str, item: bytes) -> bytes:
    """Run one task on an item as it travels: MessagePack in, MessagePack out."""
    task = TASKS[name]
    return msgspec.msgpack.encode(task.run(msgspec.msgpack.decode(item, type=task.item)))
