"""``krepair groups``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli import options as shared
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf


def groups(
    log_dir: shared.LogDirArgument,
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
    from krepair.ops import groups as ops

    with ProgressOf(quiet=quiet) as progress:
        report = ops.groups(log_dir, options, tuple(group or ()), progress)
    finish(
        "groups",
        report,
        report.exit_code,
        lambda: groups_view(report, detailed=bool(group)),
        as_json=json,
        quiet=quiet,
    )
