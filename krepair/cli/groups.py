"""``krepair groups``."""

from __future__ import annotations

from krepair.cli.options import LogDirsArgument, Typed, takes
from krepair.cli.outcome import finish
from krepair.cli.progress import ProgressOf


@takes("group now partition engine master json quiet")
def groups(log_dirs: LogDirsArgument, *, typed: Typed) -> None:
    """Say what __consumer_offsets holds: groups, members, subscriptions, commits.

    Writes nothing; exits with 2 if a group is stuck (KR609).

    Example: krepair groups /var/lib/kafka --group orders-app
    """
    options = typed.options()
    from krepair.cli.views.groups import groups_view
    from krepair.cli.views.several import of_each
    from krepair.ops import groups as ops

    with ProgressOf(quiet=typed.quiet) as progress:
        found = ops.groups_of_each(log_dirs, options, tuple(typed.group or ()), progress)
    finish(
        "groups",
        found if len(log_dirs) > 1 else found.reports[0],
        found.exit_code,
        lambda: of_each(
            "krepair groups",
            found.brokers,
            [groups_view(report, detailed=bool(typed.group)) for report in found.reports],
        ),
        typed,
    )
