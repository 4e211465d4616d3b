"""``krepair groups``."""

from __future__ import annotations

from functools import partial

from krepair.cli.one_run import run_and_finish
from krepair.cli.options import LogDirArgument, takes
from krepair.options import Options


@takes("group now_ms partitions engine master json quiet")
def groups(log_dir: LogDirArgument, *, options: Options) -> None:
    """Say what __consumer_offsets holds: groups, members, subscriptions, commits.

    Writes nothing; exits with 2 if a group is stuck (KR609), or a commit is unseen or out of range.

    Example: krepair groups /var/lib/kafka --group orders-app
    """
    from krepair.cli.views.groups import groups_view
    from krepair.ops import groups as ops

    run_and_finish(
        "groups",
        (log_dir,),
        partial(ops.groups, log_dir, options, options.group),
        partial(groups_view, detailed=bool(options.group), wanted=options.group),
        options,
    )
