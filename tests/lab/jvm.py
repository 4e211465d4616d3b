"""How a JVM of the lab is started: small heaps, quick start, the log on stderr in a readable form."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.lab.archive import mapped
from tests.lab.jars import classpath

LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.net.preferIPv4Stack=true")
# Said by healthy starts; nothing about a log. A controller that is not yet active when it registers itself (a slow
# machine) says so as an error with a stack trace, and registers itself again.
HARMLESS = re.compile(
    r"No meta\.properties|controller activation|already been closed|event queue is now closed|deprecated"
    r"|SharedServer|QuorumController|RaftManager|AppInfo|advertised\.listeners"
    r"|ControllerApis .*apiKey=CONTROLLER_REGISTRATION"
)
COMPLAINT = re.compile(r"^\S+ \S+ (?:WARN|ERROR|FATAL) ")


def java(
    version: str,
    main: str,
    *args: object,
    heap: str = "512m",
    extra_path: str = "",
    options: Iterable[str] = (),
) -> list[str]:
    """The argument list of a JVM with that version's jars; ``options`` of its own map no archive of classes."""
    path = classpath(version) + (f":{extra_path}" if extra_path else "")
    more = tuple(options) or mapped(version)
    return ["java", f"-Xmx{heap}", *QUICK, *LOGGING, *more, "-cp", path, main, *map(str, args)]


def complaints(log: str) -> list[str]:
    """Warnings and errors of a broker's log, without times and what every healthy start says."""
    lines = (line for line in log.splitlines() if COMPLAINT.match(line) and not HARMLESS.search(line))
    return [re.sub(r"^\S+ \S+ ", "", line)[:400] for line in lines]
