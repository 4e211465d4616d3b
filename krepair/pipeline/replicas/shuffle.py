"""The same join by Spark's own shuffle: rows by (partition, hash of the key) and by (partition, offset).

A task reads one replica and gives its rows; Spark groups them, drops what is equal on all replicas, and the judges run
on what is left, a batch of rows at a time. No process ever holds all keys of a partition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from krepair.errors import RefusedError
from krepair.kernels.replica_rows import ABORTED, OPEN, OTHER
from krepair.pipeline.replicas.judging import Judges, PairBounds, WorkContext
from krepair.pipeline.replicas.row_tasks import KEYS, RECORDS, ROWS_SCHEMA, UNREAD, RowTask, give_rows
from krepair.pipeline.replicas.sources import GroupWork, RowsUnreadError, UnreadRows
from krepair.rules.replicas.judge import Content, RecordDifference
from krepair.rules.replicas.keys import KeyFinding, merged

_BATCH: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_MOST_PARTITIONS: Final = 2000
_PARTITION_BITS: Final = 25
_JUDGED_ROWS: Final = "65536"
_UNREAD: Final = "its records could not be read by a Spark worker; with --engine inline krepair says where"


def shuffled_contents(session: Any, work: Sequence[GroupWork]) -> list[Content]:
    """What the records of each group came to, in order.

    Args:
        session: the Spark session.
        work: the groups.

    Raises:
        RefusedError: Spark gave up, or a worker does not see a side.
        RowsUnreadError: the records of some replicas cannot be read.
    """
    try:
        return _contents(session, work)
    except (RefusedError, RowsUnreadError):
        raise
    except Exception as error:
        lines = [line for line in str(error).splitlines() if "ReplicaError" in line] or [str(error).strip()]
        raise RefusedError(
            f"Spark gave up: {lines[0][:300]}; every worker has to see every side",
            next_command="krepair compare ... --engine inline",
        ) from error


def _contents(session: Any, work: Sequence[GroupWork]) -> list[Content]:
    from pyspark.sql import functions as f

    tasks = [(msgspec.msgpack.encode(task),) for task in _tasks(work)]
    if not tasks:
        return [Content() for _ in work]
    rows = (
        session.createDataFrame(tasks, "task binary")
        .repartition(len(tasks))
        .mapInArrow(give_rows, ROWS_SCHEMA)
    ).persist()
    wanted = {_BATCH: _JUDGED_ROWS, _PARTITIONS: str(_partitions(work))}
    before = {name: session.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        session.conf.set(name, value)
    judges = Judges([_context(one) for one in work])
    try:
        columns = max(len(one.sources) for one in work)
        keys = _side_by_side(rows.where(f.col("kind") == KEYS), columns)
        found = keys.mapInArrow(judges.keys, "work int, finding binary").collect()
        records = _by_offset(rows.where(f.col("kind") == RECORDS), columns)
        pairs = records.mapInArrow(judges.records, "work int, finding binary").collect()
        unread = rows.where(f.col("kind") == UNREAD).select("work", "replica").distinct().collect()
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
        rows.unpersist()
    if unread:
        raise RowsUnreadError([UnreadRows(int(row["work"]), int(row["replica"]), _UNREAD) for row in unread])
    of_keys: dict[int, list[KeyFinding]] = defaultdict(list)
    for row in found:
        of_keys[int(row["work"])].append(msgspec.msgpack.decode(bytes(row["finding"]), type=KeyFinding))
    of_pairs: dict[int, list[RecordDifference]] = defaultdict(list)
    for row in pairs:
        of_pairs[int(row["work"])].append(
            msgspec.msgpack.decode(bytes(row["finding"]), type=RecordDifference)
        )
    return [
        Content(keys=tuple(merged(of_keys[number])), records=tuple(_summed(of_pairs[number])))
        for number in range(len(work))
    ]


def _partitions(work: Sequence[GroupWork]) -> int:
    """How many parts the shuffle makes: small data in few, since each costs a task."""
    total = sum(
        source.item.bytes_to_read for one in work for source in one.sources if source.item is not None
    )
    return max(2, min(_MOST_PARTITIONS, total >> _PARTITION_BITS))


def _tasks(work: Sequence[GroupWork]) -> Iterator[RowTask]:
    for number, one in enumerate(work):
        for column, item in one.items():
            yield RowTask(work=number, column=column, item=item, facts="", index=-1, keys=one.compacted)
        for column, source in one.facts():
            yield RowTask(
                work=number,
                column=column,
                item=None,
                facts=source.facts,
                index=source.index,
                keys=one.compacted,
            )


def _context(one: GroupWork) -> WorkContext:
    group = one.group
    bounds = []
    for a, mine in enumerate(group.replicas):
        for b, other in enumerate(group.replicas):
            if a != b and mine.says and other.says and (a < b or not one.compacted):
                low = max(mine.state.log_start, other.state.log_start)
                high = min(mine.end, other.end, group.fork_of(a, b))
                bounds.append(
                    PairBounds(
                        one=a, other=b, low=low, high=high, missing_too=not one.compacted, hidden=other.hidden
                    )
                )
    return WorkContext(
        standings=tuple(group.standings()),
        forks=tuple((a, b, fork.offset) for (a, b), fork in group.forks.items()),
        pairs=tuple(bounds),
        catch_ups=tuple(group.catch_ups()),
    )


def _side_by_side(rows: Any, columns: int) -> Any:
    """One row for each key whose last committed or open offset is not the same on all replicas."""
    from pyspark.sql import functions as f

    committed = f.col("bits").bitwiseAND(f.lit(OTHER)) == 0
    is_open = f.col("bits").bitwiseAND(f.lit(OPEN)) != 0
    is_aborted = f.col("bits").bitwiseAND(f.lit(ABORTED)) != 0
    made = []
    for column in range(columns):
        mine = f.col("replica") == column
        last = f.max(f.when(mine & committed, f.struct("offset", "bits")))
        last_open = f.max(f.when(mine & is_open, f.struct("offset", "bits")))
        made += [
            f.coalesce(last["offset"], f.lit(-1)).alias(f"offset{column}"),
            f.coalesce(last["bits"], f.lit(0)).alias(f"bits{column}"),
            f.coalesce(last_open["offset"], f.lit(-1)).alias(f"open{column}"),
            f.coalesce(last_open["bits"], f.lit(0)).alias(f"open_bits{column}"),
            f.coalesce(f.max(f.when(mine & is_aborted, f.col("offset"))), f.lit(-1)).alias(f"abort{column}"),
        ]
    wide = rows.groupBy("work", "first", "second").agg(*made)
    tables = [[f.col(f"{name}{column}") for column in range(columns)] for name in ("offset", "open")]
    differ = [f.size(f.array_distinct(f.array(*table))) > 1 for table in tables]
    return wide.where(differ[0] | differ[1])


def _by_offset(rows: Any, columns: int) -> Any:
    """One row for each offset at which not all replicas have the same record."""
    from pyspark.sql import functions as f

    digests = [
        f.max(f.when(f.col("replica") == column, f.col("digest"))).alias(f"digest{column}")
        for column in range(columns)
    ]
    wide = rows.groupBy("work", "offset").agg(*digests)
    found = [f.col(f"digest{column}") for column in range(columns)]
    return wide.where(f.size(f.array_distinct(f.array(*found))) > 1)


def _summed(parts: Sequence[RecordDifference]) -> Iterator[RecordDifference]:
    """One for each pair."""
    by_pair: dict[tuple[int, int], list[RecordDifference]] = defaultdict(list)
    for part in parts:
        by_pair[part.one, part.other].append(part)
    for (one, other), found in sorted(by_pair.items()):
        yield RecordDifference(
            one,
            other,
            sum(part.differing for part in found),
            min((part.first_differing for part in found if part.differing), default=-1),
            sum(part.missing for part in found),
            min((part.first_missing for part in found if part.missing), default=-1),
        )
