"""``krepair groups``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli import options as shared
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf


def groups(
    log_dirs: shared.LogDirsArgument,
    *,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="GROUP", help="Only this group, with members and commits; may be repeated."
        ),
    ] = None,
    now: shared.NowOption = None,
    partition: shared.PartitionOption = None,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Say what __consumer_offsets holds: groups, members, subscriptions, commits.

    Writes nothing; exits with 2 if a group is stuck (KR609).

    Example: krepair groups /var/lib/kafka --group orders-app
    """
    options = shared.common_options(now=now, partitions=partition, engine=engine, master=master)
    from krepair.cli.views.groups import groups_view
    from krepair.cli.views.several import of_each
    from krepair.ops import groups as ops

    with ProgressOf(quiet=quiet) as progress:
        found = ops.groups_of_each(log_dirs, options, tuple(group or ()), progress)
    finish(
        "groups",
        found if len(log_dirs) > 1 else found.reports[0],
        found.exit_code,
        lambda: of_each(
            "krepair groups",
            found.brokers,
            [groups_view(report, detailed=bool(group)) for report in found.reports],
        ),
        as_json=json,
        quiet=quiet,
    )
