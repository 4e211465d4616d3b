"""``krepair groups``."""

from __future__ import annotations

from functools import partial

from krepair.cli.one_run import run_and_finish
from krepair.cli.options import LogDirArgument, Typed, takes


@takes("group now partition engine master json quiet")
def groups(log_dir: LogDirArgument, *, typed: Typed) -> None:
    """Say what __consumer_offsets holds: groups, members, subscriptions, commits.

    Writes nothing; exits with 2 if a group is stuck (KR609), or a commit is unseen or out of range.

    Example: krepair groups /var/lib/kafka --group orders-app
    """
    options = typed.options()
    from krepair.cli.views.groups import groups_view
    from krepair.ops import groups as ops

    wanted = tuple(typed.group or ())
    run_and_finish(
        "groups",
        (log_dir,),
        partial(ops.groups, log_dir, options, wanted),
        partial(groups_view, detailed=bool(wanted), wanted=wanted),
        typed,
    )
