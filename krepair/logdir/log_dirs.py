"""The log directories in a broker's configuration."""

from __future__ import annotations

import os
from collections.abc import Sequence

from krepair.logdir.config_files import read_server_properties


def configured_log_dirs(config: str | None) -> tuple[str, ...]:
    """The log directories in a ``server.properties``, in its order; empty if there are none.

    ``log.dirs`` counts before ``log.dir``.

    Raises:
        UsageError: the file cannot be read or is not a properties file.

    Source: ``KafkaConfig.logDirs`` (2.2.1, 3.9.0).
    """
    lines = {} if config is None else read_server_properties(config)
    line = lines.get("log.dirs") or lines.get("log.dir")
    return () if line is None else tuple(path.strip() for path in line.value.split(",") if path.strip())


def log_dirs_left_out(given: Sequence[str], config: str | None) -> tuple[str, ...]:
    """Log directories in the configuration that were not given, in its order.

    The result is empty if none of them was given: then the given directory is a copy, or it is from another host.

    Raises:
        UsageError: see ``configured_log_dirs``.
    """
    known = {os.path.realpath(path) for path in given}
    configured = configured_log_dirs(config)
    left = tuple(path for path in configured if os.path.realpath(path) not in known)
    return left if len(left) < len(configured) else ()
