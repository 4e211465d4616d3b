"""``python -m krepair``: the same as the installed command."""

from __future__ import annotations

from krepair.cli.main import main

if __name__ == "__main__":
    main()
