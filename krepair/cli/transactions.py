"""``krepair transactions``."""

from __future__ import annotations

from functools import partial

from krepair.cli.one_run import run_and_finish
from krepair.cli.options import LogDirArgument, Typed, takes


@takes(
    "transactional_id config topic_config setting now broker_version topic partition engine master json quiet"
)
def transactions(log_dir: LogDirArgument, *, typed: Typed) -> None:
    """Say what __transaction_state and the logs hold of transactions.

    Writes nothing; exits with 2 if one never ends (KR103).

    Example: krepair transactions /var/lib/kafka --broker-version 3.9.2
    """
    options = typed.options()
    from krepair.cli.views.transactions import transactions_view
    from krepair.ops import transactions as ops

    wanted = tuple(typed.transactional_id or ())
    run_and_finish(
        "transactions",
        (log_dir,),
        partial(ops.transactions, log_dir, options, wanted),
        partial(transactions_view, detailed=bool(wanted), wanted=wanted),
        typed,
    )
