"""``krepair transactions``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli import options as shared
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf


def transactions(
    log_dirs: shared.LogDirsArgument,
    *,
    transactional_id: Annotated[
        list[str] | None,
        typer.Option(
            "--transactional-id", metavar="ID", help="Only this id, in whatever state; may be repeated."
        ),
    ] = None,
    config: shared.ConfigOption = None,
    topic_config: shared.TopicConfigOption = None,
    setting: shared.SetOption = None,
    now: shared.NowOption = None,
    broker_version: shared.BrokerVersionOption = "",
    topic: shared.TopicOption = None,
    partition: shared.PartitionOption = None,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Say what __transaction_state and the logs hold of transactions.

    Writes nothing; exits with 2 if one never ends (KR103).

    Example: krepair transactions /var/lib/kafka --broker-version 3.9.2
    """
    options = shared.common_options(
        config=config,
        topic_config=topic_config,
        settings=setting,
        now=now,
        broker_version=broker_version,
        topics=topic,
        partitions=partition,
        engine=engine,
        master=master,
    )
    from krepair.cli.views.several import of_each
    from krepair.cli.views.transactions import transactions_view
    from krepair.ops import transactions as ops

    with ProgressOf(quiet=quiet) as progress:
        found = ops.transactions_of_each(log_dirs, options, tuple(transactional_id or ()), progress)
    finish(
        "transactions",
        found if len(log_dirs) > 1 else found.reports[0],
        found.exit_code,
        lambda: of_each(
            "krepair transactions",
            found.brokers,
            [transactions_view(report, detailed=bool(transactional_id)) for report in found.reports],
        ),
        as_json=json,
        quiet=quiet,
    )
