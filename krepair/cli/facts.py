"""``krepair facts``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair.cli.one_run import run_and_finish
from krepair.cli.options import takes
from krepair.options import Options


@takes("facts_file config topics partitions engine master scratch json quiet")
def facts(
    log_dirs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOGDIR...", help="All log directories of one broker; left out, all that --config names."
        ),
    ] = None,
    *,
    options: Options,
) -> None:
    """Write down what another host has to know of this broker's replicas, so that no data travels.

    The file holds hashes, offsets and numbers: no key and no value of a record.

    Example: krepair facts /var/lib/kafka --out b3.facts
    """
    from krepair.cli.views.compare import facts_view
    from krepair.errors import UsageError
    from krepair.ops import facts as ops
    from krepair.ops.log_dirs_given import log_dirs_asked_for

    if not options.facts_file:
        raise UsageError("--out FILE is needed: where the facts go")
    paths = log_dirs_asked_for(log_dirs or (), options.config)
    run_and_finish(
        "facts",
        paths,
        lambda progress: ops.facts(paths, options.facts_file, options, progress),
        facts_view,
        options,
    )
