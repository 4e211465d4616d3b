"""Options for starting a JVM of the lab: small heaps, quick start, the log on stderr in a readable form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.lab.archive import mapped
from tests.lab.classes import compiled
from tests.lab.jars import classpath

LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper=warn",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
)
QUICK = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    *("-Djava.net.preferIPv4Stack=true", "-Dfile.encoding=UTF-8"),
)
COMPLAINT = re.compile(r"^\S+ \S+ (?:WARN|ERROR|FATAL) ")
# Loggers of what reads and writes logs. All others (controllers, Raft, the network, clients, ZooKeeper) warn of each
# other while they start, move and stop, the more the slower the machine is: that is no fault of a log.
OF_LOGS = re.compile(
    r"^\S+ \S+ \S+ (?:kafka\.(?:log|cluster|coordinator)\."
    r"|kafka\.server\.(?:ReplicaManager|LogDirFailureChannel|BrokerMetadataCheckpoint|checkpoints\.|epoch\.)"
    r"|org\.apache\.kafka\.(?:storage|coordinator|common\.record|common\.utils|server\.common|server\.log)\.)"
)
# Whoever says this speaks of a log, or of the end of the broker.
ANYBODY = re.compile(
    r"FATAL|[Ff]atal|KafkaStorage|Corrupt|corrupt|InvalidRecord|InvalidOffset|OutOfOrderSequence|NoSuchFile"
    r"|OutOfMemory|log dir|\d{20}\.|-checkpoint"
)
# Said by healthy starts and stops.
HARMLESS = re.compile(
    r"No meta\.properties|deprecated|AppInfo|TransactionMarker(?:Channel|Request)|already been closed"
)


def java(
    version: str,
    main: str,
    *args: object,
    heap: str = "512m",
    extra_path: str = "",
    options: Iterable[str] = (),
) -> list[str]:
    """The argument list of a JVM with that version's jars; ``options`` of its own map no archive of classes.

    Args:
        version: of Kafka.
        main: name of a class, or path of a program of the lab (``.java``).
        args: of the program.
        heap: of the JVM.
        extra_path: more of the class path.
        options: of the JVM.
    """
    path = classpath(version) + (f":{extra_path}" if extra_path else "")
    if main.endswith(".java"):
        source = Path(main)
        main = source.stem
        path += f":{compiled(version, main, source.read_text(encoding='utf-8'))}"
    more = tuple(options) or mapped(version)
    return ["java", f"-Xmx{heap}", *QUICK, *LOGGING, *more, "-cp", path, main, *map(str, args)]


def complaints(log: str) -> list[str]:
    """Warnings and errors of a broker's log that are about its own logs or end it, without times."""
    said = (line for line in log.splitlines() if COMPLAINT.match(line))
    lines = (one for one in said if (OF_LOGS.match(one) or ANYBODY.search(one)) and not HARMLESS.search(one))
    return [re.sub(r"^\S+ \S+ ", "", line)[:400] for line in lines]
