"""``krepair warm``."""

from __future__ import annotations

from krepair.cli.compiling import say_of_warm
from krepair.cli.options import takes
from krepair.cli.outcome import finish
from krepair.options import Options


@takes("into json quiet")
def warm(*, options: Options) -> None:
    """Compile now what the first run of the other verbs would compile. Part of an installation.

    Example: krepair warm
    """
    from krepair.ops import warm as ops

    report = ops.warm(options.into, None if options.quiet or options.json else say_of_warm)
    finish("warm", report, lambda: ops.warm_view(report), options)
