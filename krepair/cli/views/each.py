"""The page over the plans of several brokers: sum, order, and what to watch between two."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from krepair.cli.views.reports import end_of_page
from krepair.ops.plan_each import PAGE_TITLE, BrokerInOrder, EachReport, PlanOfOne
from krepair.plan.view import Section, Table, View, bytes_text, count_text, table_of

_BETWEEN = (
    "krepair verify found nothing: exit code 0.",
    (
        "Where brokers run: start this one, and wait until all its replicas are in sync again. Then "
        "kafka-topics.sh --bootstrap-server HOST:PORT --describe --under-replicated-partitions prints nothing."
    ),
    (
        "Where brokers run: its log names no partition that was changed with an error, and no consumer of "
        "read_committed stands still."
    ),
    "Its originals are purged. Originals that are kept can come back by undo, so they count as data of that replica.",
)
_READ = "Read the plan. Then:"
_FREE = (
    "Type this only if verify ended with 0. Where brokers run, wait first until all replicas are in sync. There is no "
    "undo after it:"
)
_STOP = (
    "If one of these is not so, do not go on: krepair undo on that broker, while it is stopped, and krepair compare.",
)


def each_view(report: EachReport) -> View:
    """What ``plan --each`` came to."""
    changing = [plan for plan in report.plans if plan.exit_code]
    plans = f"{count_text(len(report.plans), 'plan')} of {count_text(len(report.order), 'broker')} in {report.folder}"
    lines = [
        f"{plans}; {len(changing)} have something to do.",
        f"All together: apply frees {bytes_text(report.freed_at_apply)}, purge {bytes_text(report.freed_at_purge)}.",
        "Each plan is applied on the host that has its directory. Nothing was changed; nothing runs on other hosts.",
    ]
    if report.nothing_named:
        lines.append(
            f"Nothing of what was named is in {', '.join(report.nothing_named)}: no plan is made there."
        )
    return View(
        title=PAGE_TITLE,
        sections=(
            Section(title="Sum", lines=tuple(lines), table=_table(report)),
            *(part for place, one in enumerate(report.order, 1) for part in _of_broker(report, place, one)),
            Section(title="Before you go on to the next broker", lines=_BETWEEN),
            Section(title="If something is wrong", lines=_STOP),
            *end_of_page(report.engine, report.next_command),
        ),
    )


def _table(report: EachReport) -> Table:
    return table_of(
        "# broker | log directory | plan | # partitions | # left alone | # apply frees | # purge frees",
        (
            (
                str(one.broker_id),
                one.log_dir,
                one.plan_id,
                one.partitions,
                one.left_alone,
                one.freed_at_apply,
                one.freed_at_purge,
            )
            for one in report.plans
        ),
    )


def _of_broker(report: EachReport, place: int, broker: BrokerInOrder) -> Iterator[Section]:
    """Purge stands apart: pasted together with verify it would run whatever verify has found."""
    title = f"{place}. Broker {broker.broker_id}"
    own = [plan for plan in report.plans if plan.broker_id == broker.broker_id]
    todo = [plan for plan in own if plan.exit_code]
    if not todo:
        yield Section(title=title, lines=("There is nothing to do.",))
        return
    paths = [shlex.quote(plan.path) for plan in todo]
    yield Section(
        title=title,
        lines=tuple(_lines(report, broker, todo)),
        commands=tuple(f"krepair show {path}" for path in paths),
    )
    yield Section(
        title="",
        lines=(_READ,),
        commands=tuple(f"krepair apply {path} && krepair verify {path} --originals" for path in paths),
    )
    yield Section(title="", lines=(_FREE,), commands=tuple(f"krepair purge {path}" for path in paths))


def _lines(report: EachReport, broker: BrokerInOrder, todo: list[PlanOfOne]) -> Iterator[str]:
    if broker.alone_count:
        names = ", ".join(broker.alone_in_sync)
        more = ", ..." if broker.alone_count > len(broker.alone_in_sync) else ""
        yield (
            f"It is the only one in sync of {count_text(broker.alone_count, 'partition')} ({names}{more}). "
            "Wait until another replica is in sync: with this broker stopped nobody serves that."
        )
    if broker.is_controller:
        yield "It is the active controller: stopping it moves the controller."
    if broker.leads >= 0:
        yield f"It leads {count_text(broker.leads, 'partition')}."
    earlier = {one.broker_id for one in report.order[: report.order.index(broker)]}
    changed = {plan.broker_id for plan in report.plans if plan.exit_code}
    rests_on = sorted({other for plan in todo for other in plan.rests_on} & earlier & changed)
    if rests_on:
        yield (
            f"This plan rests on the logs of broker {', '.join(map(str, rests_on))} as they are now. Once these are "
            f"changed, apply refuses it (12): make the plans again first, with {report.again}"
        )
    elif any(plan.rests_on for plan in todo):
        others = sorted({other for plan in todo for other in plan.rests_on})
        yield (
            f"This plan rests on the logs of broker {', '.join(map(str, others))}: apply needs them at the same paths, "
            "unchanged and not in use."
        )
