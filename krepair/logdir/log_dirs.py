"""The log directories in a broker's configuration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from krepair.logdir.config_files import read_server_properties

DEFAULT_LOG_DIR: Final = "/tmp/kafka-logs"  # noqa: S108
"""Where a broker keeps its logs if it is told nothing. Source: ``ServerLogConfigs.LOG_DIR_DEFAULT`` (3.9.0)."""

_ID_KEYS: Final = ("node.id", "broker.id")


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


def configured_metadata_dirs(config: str | None) -> tuple[str, ...]:
    """Where a broker may have its metadata log: ``metadata.log.dir``, or one of its log directories.

    Raises:
        UsageError: see ``configured_log_dirs``.

    Source: ``KafkaConfig.metadataLogDir`` (3.9.0): that of the setting, else the first log directory.
    """
    line = None if config is None else read_server_properties(config).get("metadata.log.dir")
    named = (line.value.strip(),) if line is not None and line.value.strip() else ()
    return (*named, *configured_log_dirs(config))


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


def configured_id(config: str | None) -> str:
    """``node.id`` or ``broker.id`` of a ``server.properties``, empty if it says none or leaves it to the cluster.

    Raises:
        UsageError: the file cannot be read.
    """
    lines = {} if config is None else read_server_properties(config)
    values = [lines[key].value.strip() for key in _ID_KEYS if key in lines]
    return "" if not values or values[0].startswith("-") else values[0]


def why_of_another_broker(config: str | None, log_dir: str, broker_id: str) -> str:
    """Why a ``server.properties`` is of another broker than a log directory, by their ids; empty if they do not differ.

    Args:
        config: path of the file, None if there is none.
        log_dir: path of the log directory.
        broker_id: whose it is, empty if it does not say so.

    Raises:
        UsageError: the file cannot be read.
    """
    configured = configured_id(config)
    if not configured or not broker_id or configured == broker_id:
        return ""
    return f"{config} is of broker {configured}; {log_dir} is of broker {broker_id}"
