"""``krepair groups``."""

from __future__ import annotations

from functools import partial

from krepair.cli.one_run import finish_each
from krepair.cli.options import LogDirsArgument, Typed, takes
from krepair.cli.progress import ProgressOf


@takes("group now partition engine master json quiet")
def groups(log_dirs: LogDirsArgument, *, typed: Typed) -> None:
    """Say what __consumer_offsets holds: groups, members, subscriptions, commits.

    Writes nothing; exits with 2 if a group is stuck (KR609).

    Example: krepair groups /var/lib/kafka --group orders-app
    """
    options = typed.options()
    from krepair.cli.views.groups import groups_view
    from krepair.ops import groups as ops

    with ProgressOf(quiet=typed.quiet) as progress:
        found = ops.groups_of_each(log_dirs, options, tuple(typed.group or ()), progress)
    finish_each(
        "groups",
        found,
        partial(groups_view, detailed=bool(typed.group), wanted=tuple(typed.group or ())),
        typed,
    )
