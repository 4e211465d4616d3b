"""``krepair plan --each``: plans of the log directories of several brokers in one run, and one page over them.

A plan stays one per directory, and is applied where its directory is. The directories are each other's ``--replicas``.
Nothing is run on other hosts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from msgspec import Struct

from krepair.errors import ExitCode, RefusedError, UsageError
from krepair.fixes.fix import named_or_all
from krepair.fixes.other_dirs import ListedDirs
from krepair.logdir.cluster import ClusterView, read_cluster_file
from krepair.logdir.log_dirs import why_of_another_broker
from krepair.logdir.values import LogDir
from krepair.logdir.view import read_log_dir
from krepair.ops import output_file, show
from krepair.ops.log_dirs_given import check_named
from krepair.ops.output_file import OutputKind
from krepair.ops.plan import make_plan, work_of_dir
from krepair.ops.sides import parse_sides
from krepair.options import Options
from krepair.pipeline.engines.choice import choose_engine
from krepair.pipeline.engines.costs import WorkKind
from krepair.pipeline.progress import Progress
from krepair.plan.model import Evidence, Plan

PAGE_NAME: Final = "plans.md"
PAGE_TITLE: Final = "krepair: the plans of a cluster"
_PAGE: Final = OutputKind(option="--out", what="pages", first=f"# {PAGE_TITLE}".encode())
_ALONE: Final = frozenset({"refetch"})
"""Fixes that are of one broker at a time."""


class PlanOfOne(Struct, frozen=True, kw_only=True):
    """One plan of several.

    Attributes:
        broker_id: whose log directory it is.
        log_dir: absolute path of the log directory.
        path: of the plan file.
        plan_id: its id.
        partitions: number of those that change.
        left_alone: number of those that are left as they are because of damage, or of something else that is wrong.
        freed_at_apply: bytes that apply frees.
        freed_at_purge: bytes that purge frees.
        rests_on: other brokers on whose logs it rests. Once one of these is changed, apply refuses it (12): then it has
            to be made again.
        exit_code: of this plan alone: 2 if there is something to do.
    """

    broker_id: int
    log_dir: str
    path: str
    plan_id: str
    partitions: int
    left_alone: int
    freed_at_apply: int
    freed_at_purge: int
    rests_on: tuple[int, ...]
    exit_code: int


class BrokerInOrder(Struct, frozen=True, kw_only=True):
    """One broker in the order in which the plans are to be applied.

    Attributes:
        broker_id: its id.
        leads: number of partitions that it leads; -1 if that is not known.
        is_controller: whether it is the active controller; False if that is not known.
        alone_in_sync: partitions, ``topic-number``, of which it is the only replica in sync; at most a few.
        alone_count: number of these.
    """

    broker_id: int
    leads: int = -1
    is_controller: bool = False
    alone_in_sync: tuple[str, ...] = ()
    alone_count: int = 0


class EachReport(Struct, frozen=True, kw_only=True):
    """What ``plan --each`` came to.

    Attributes:
        folder: absolute path of the folder that holds the plans.
        page: path of the page over them.
        plans: in the order of the brokers.
        order: the brokers in the order in which to apply.
        again: what to type to make all plans again.
        freed_at_apply: sum over the plans.
        freed_at_purge: sum over the plans.
        engine: where the work was done, and why.
        next_command: what to type next.
        nothing_named: absolute paths of the log directories that have nothing of what was named; no plan is made of
            them, and the others still count them as replicas.
    """

    folder: str
    page: str
    plans: tuple[PlanOfOne, ...]
    order: tuple[BrokerInOrder, ...]
    again: str
    freed_at_apply: int
    freed_at_purge: int
    engine: str
    next_command: str
    nothing_named: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """FOUND where a plan has something to do."""
        return max((ExitCode(plan.exit_code) for plan in self.plans), default=ExitCode.DONE)


def plan_each(
    log_dirs: Sequence[str], folder: str, options: Options, progress: Progress | None = None
) -> tuple[EachReport, tuple[Plan, ...]]:
    """Make one plan per log directory, with one engine. Nothing is written.

    Args:
        log_dirs: of several brokers; a broker may have several.
        folder: that is to hold the plans.
        options: as typed, the same for all. What ``replicas`` names comes to the other directories.
        progress: told of bytes.

    Returns:
        The report, and the plans in its order.

    Raises:
        UsageError: a directory is given twice, does not say whose it is, or an option is of one plan only.
        RefusedError: the directories are of several clusters, or a plan must not be written to the folder.
        NotALogDirError: partitions were named, and none of them is in any directory.
        KrepairError: see ``krepair.ops.plan.make_plan``. Then no plan is made at all.
    """
    views = _views(log_dirs, options)
    paths = _paths(views, folder)
    output_file.check_place(_PAGE, os.path.join(folder, PAGE_NAME), [view.path for view in views])
    holding = _holding(views, options)
    each = [_options_of(view, views, options) for view in holding]
    work = dict.fromkeys(WorkKind, 0)
    for view, own in zip(holding, each, strict=True):
        for kind, size in work_of_dir(view, own).items():
            work[kind] += size
    listed = ListedDirs(views)
    with closing(choose_engine(options.engine, options.master, work, progress)) as engine:
        made = tuple(
            make_plan(view.path, own, progress, engine, listed)
            for view, own in zip(holding, each, strict=True)
        )
    owners = {view.path: int(view.broker_id) for view in views}
    rows = tuple(_row(plan, paths[plan.log_dir], owners) for plan in made)
    again = shlex.join(
        (
            "krepair",
            "plan",
            "--each",
            *(view.path for view in views),
            *options.as_plan_words(),
            "--out",
            folder,
        )
    )
    order = order_of({row.broker_id for row in rows}, _cluster(options))
    report = EachReport(
        folder=os.path.abspath(folder),
        page=os.path.join(os.path.abspath(folder), PAGE_NAME),
        plans=rows,
        order=order,
        again=again,
        freed_at_apply=sum(row.freed_at_apply for row in rows),
        freed_at_purge=sum(row.freed_at_purge for row in rows),
        engine=engine.why,
        next_command=_next(rows, order),
        nothing_named=tuple(view.path for view in views if view not in holding),
    )
    return report, made


def save_all(report: EachReport, plans: Sequence[Plan], page: str) -> None:
    """Write the plans, and at last the page.

    Raises:
        KrepairError: see ``krepair.ops.show.save``.
        OSError: the page could not be written.
    """
    for row, plan in zip(report.plans, plans, strict=True):
        show.save(row.path, plan)
    output_file.write(_PAGE, os.path.realpath(report.page), page.encode())


def _views(log_dirs: Sequence[str], options: Options) -> list[LogDir]:
    if len(log_dirs) < 2:
        raise UsageError(f"--each: {len(log_dirs)} log directories are given, at least 2 are needed")
    alone = _ALONE & {word.partition("=")[0] for word in options.fixes}
    if alone:
        raise UsageError(f"--fix {', '.join(sorted(alone))} is of one broker at a time: leave --each out")
    views = [read_log_dir(path) for path in log_dirs]
    paths = [view.path for view in views]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise UsageError(f"--each: {twice} is given twice")
    for view in views:
        if not view.broker_id.isdecimal():
            raise UsageError(
                f"{view.path}/meta.properties: does not say whose log directory this is (broker.id)"
            )
    clusters = {view.cluster_id: view.path for view in views if view.cluster_id}
    if len(clusters) > 1:
        each = ", ".join(f"{path} of {name}" for name, path in sorted(clusters.items()))
        raise RefusedError(f"the log directories are of several clusters: {each}")
    return sorted(views, key=lambda view: int(view.broker_id))


def _holding(views: Sequence[LogDir], options: Options) -> list[LogDir]:
    """The log directories of which a plan is made: a topic need not have replicas on all brokers.

    Raises:
        NotALogDirError: partitions were named, and none of them is in any.
    """
    holding = [view for view in views if named_or_all(view, options)]
    if not holding:
        check_named(views, options)
    return holding or list(views)


def _paths(views: Sequence[LogDir], folder: str) -> dict[str, str]:
    """Log directory -> path of its plan: ``b1.krplan``, or ``b1-2.krplan`` for the second one of broker 1."""
    paths = {}
    for view in views:
        own = [one.path for one in views if one.broker_id == view.broker_id]
        number = f"-{own.index(view.path) + 1}" if len(own) > 1 else ""
        path = os.path.join(folder, f"b{view.broker_id}{number}.krplan")
        show.check_place(path, view.path)
        paths[view.path] = os.path.abspath(path)
    return paths


def _options_of(view: LogDir, views: Sequence[LogDir], options: Options) -> Options:
    """The other brokers' directories are its replicas, besides those that were typed."""
    typed = parse_sides(options.replicas, at_least=0)
    given = {side.broker_id for side in typed}
    sides = []
    for broker in sorted({int(one.broker_id) for one in views}):
        paths = [one.path for one in views if int(one.broker_id) == broker]
        if broker in given:
            raise UsageError(f"--replicas names broker {broker}, whose directories are given with --each")
        # A configuration of one broker says nothing of the others' directories: then those that were typed count.
        if str(broker) != view.broker_id or why_of_another_broker(options.config, view.path, view.broker_id):
            sides.append(f"{broker}={','.join(paths)}")
    return replace(options, replicas=(*sides, *(side.text for side in typed)))


def _cluster(options: Options) -> ClusterView | None:
    return read_cluster_file(options.cluster) if options.cluster else None


def _row(plan: Plan, path: str, owners: Mapping[str, int]) -> PlanOfOne:
    changing = plan.changing
    evidence = [one.evidence for one in changing if isinstance(one.evidence, Evidence)]
    brokers = {owners[log.log_dir] for one in evidence for log in one.logs if log.log_dir in owners}
    something = plan.root is not None or bool(changing) or bool(plan.uncleanable_partitions)
    return PlanOfOne(
        broker_id=owners[plan.log_dir],
        log_dir=plan.log_dir,
        path=path,
        plan_id=plan.plan_id,
        partitions=len(changing),
        left_alone=plan.uncleanable_partitions,
        freed_at_apply=plan.freed_at_apply,
        freed_at_purge=plan.freed_at_purge,
        rests_on=tuple(sorted(brokers - {owners[plan.log_dir]})),
        exit_code=int(ExitCode.FOUND if something else ExitCode.DONE),
    )


def order_of(brokers: Iterable[int], cluster: ClusterView | None) -> tuple[BrokerInOrder, ...]:
    """The brokers in the order in which they should be done.

    One that is alone in the ISR of a partition comes last, since with it stopped nobody serves that partition. The
    active controller comes before these. Of the others the one that leads least comes first: its stop moves the fewest
    leaders.

    Args:
        brokers: ids.
        cluster: what the cluster says, or None.
    """
    rows = [_broker(broker, cluster) for broker in brokers]
    return tuple(
        sorted(rows, key=lambda one: (one.alone_count > 0, one.is_controller, one.leads, one.broker_id))
    )


_NAMED_AT_MOST: Final = 5


def _broker(broker: int, cluster: ClusterView | None) -> BrokerInOrder:
    if cluster is None:
        return BrokerInOrder(broker_id=broker)
    alone = sorted(name for name, one in cluster.partitions.items() if one.isr == (broker,))
    return BrokerInOrder(
        broker_id=broker,
        leads=sum(one.leader == broker for one in cluster.partitions.values()),
        is_controller=cluster.active_controller == broker,
        alone_in_sync=tuple(f"{topic}-{number}" for topic, number in alone[:_NAMED_AT_MOST]),
        alone_count=len(alone),
    )


def _next(rows: Sequence[PlanOfOne], order: Sequence[BrokerInOrder]) -> str:
    """Look at the first plan that has something to do, in the order of the brokers."""
    for broker in order:
        for row in rows:
            if row.broker_id == broker.broker_id and row.exit_code:
                return f"krepair show {shlex.quote(row.path)}"
    return ""
