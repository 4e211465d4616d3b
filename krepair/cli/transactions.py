"""``krepair transactions``."""

from __future__ import annotations

from functools import partial

from krepair.cli.one_run import finish_each
from krepair.cli.options import LogDirsArgument, Typed, takes
from krepair.cli.progress import ProgressOf


@takes(
    "transactional_id config topic_config setting now broker_version topic partition engine master json quiet"
)
def transactions(log_dirs: LogDirsArgument, *, typed: Typed) -> None:
    """Say what __transaction_state and the logs hold of transactions.

    Writes nothing; exits with 2 if one never ends (KR103).

    Example: krepair transactions /var/lib/kafka --broker-version 3.9.2
    """
    options = typed.options()
    from krepair.cli.views.transactions import transactions_view
    from krepair.ops import transactions as ops

    wanted = tuple(typed.transactional_id or ())
    with ProgressOf(quiet=typed.quiet) as progress:
        found = ops.transactions_of_each(log_dirs, options, wanted, progress)
    finish_each(
        "transactions", found, partial(transactions_view, detailed=bool(wanted), wanted=wanted), typed
    )
