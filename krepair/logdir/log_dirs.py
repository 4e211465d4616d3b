"""The log directories that a broker's configuration names."""

from __future__ import annotations

import os
from collections.abc import Sequence

from krepair.logdir.config_files import read_server_properties


def configured_log_dirs(config: str | None) -> tuple[str, ...]:
    """The log directories that a ``server.properties`` names, in its order; empty where it names none.

    ``log.dirs`` counts before ``log.dir`` (``KafkaConfig.logDirs``).

    Raises:
        UsageError: the file cannot be read.
    """
    lines = {} if config is None else read_server_properties(config)
    line = lines.get("log.dirs") or lines.get("log.dir")
    return () if line is None else tuple(path.strip() for path in line.value.split(",") if path.strip())


def log_dirs_left_out(given: Sequence[str], config: str | None) -> tuple[str, ...]:
    """Log directories that the configuration names and that are not looked at, in its order.

    Nothing is left out where none of them was given: then the directory is a copy, or of another host.
    """
    known = {os.path.realpath(path) for path in given}
    configured = configured_log_dirs(config)
    left = tuple(path for path in configured if os.path.realpath(path) not in known)
    return left if len(left) < len(configured) else ()
