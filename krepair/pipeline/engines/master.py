"""Whether a Spark master answers at all, before a JVM tries it for a minute."""

from __future__ import annotations

import re
import socket
from typing import Final

_STANDALONE: Final = "spark://"
_PATIENCE_S: Final = 5.0
_JAVA_CAUSE: Final = re.compile(r"(?:Caused by: )?(?:[a-z]\w*\.)+\w*(?:Exception|Error): (?P<said>\S.*)")


def why_not_reached(master: str, patience_s: float = _PATIENCE_S) -> str:
    """Why no process listens where a master should; empty if one does, or the master is of another kind.

    Args:
        master: Spark master URL, as ``spark://host:7077`` or ``spark://host:7077,other:7077``.
        patience_s: how long one connection may take.
    """
    if not master.startswith(_STANDALONE):
        return ""
    problems = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            return f"{address!r} is not HOST:PORT"
        try:
            with socket.create_connection((host.strip("[]"), int(port)), patience_s):
                return ""
        except (OSError, OverflowError) as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            problems.append(f"{address}: {said}")
    return "; ".join(problems)


def why_not_started(error: Exception, master: str) -> str:
    """What Spark says of a session that did not start, in one line."""
    text = str(error).strip()
    if "stopped SparkContext" in text or "All masters are unresponsive" in text:
        return (
            f"{master} took no application for a minute: is it a Spark master, and of this version of Spark?"
        )
    causes = [found["said"] for line in text.splitlines() if (found := _JAVA_CAUSE.fullmatch(line.strip()))]
    return causes[-1] if causes else text.partition("\n")[0]
