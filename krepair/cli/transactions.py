"""``krepair transactions``."""

from __future__ import annotations

from functools import partial

from krepair.cli.one_run import run_and_finish
from krepair.cli.options import LogDirArgument, takes
from krepair.options import Options


@takes(
    "transactional_id config topic_config settings now_ms broker_version topics partitions engine master json quiet"
)
def transactions(log_dir: LogDirArgument, *, options: Options) -> None:
    """Say what __transaction_state and the logs hold of transactions.

    Writes nothing; exits with 2 if one never ends (KR103).

    Example: krepair transactions /var/lib/kafka --broker-version 3.9.2
    """
    from krepair.cli.views.transactions import transactions_view
    from krepair.ops import transactions as ops

    run_and_finish(
        "transactions",
        (log_dir,),
        partial(ops.transactions, log_dir, options, options.transactional_id),
        partial(transactions_view, detailed=bool(options.transactional_id), wanted=options.transactional_id),
        options,
    )
