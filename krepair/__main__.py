"""The command ``krepair``: as it is installed, and as ``python -m krepair``."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Entry point of the installed command."""
    # Ctrl-C waits until there is who says how a run ends: of one that meets an import, Python shows where that stood.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    from krepair.cli.main import main

    main()


if __name__ == "__main__":
    main()
