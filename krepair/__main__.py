"""The command ``krepair``: as it is installed, and as ``python -m krepair``."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the installed command."""
    # Ctrl-C is blocked until its handler is installed: during an import it would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    from krepair.cli.main import main

    main()


if __name__ == "__main__":
    main()
