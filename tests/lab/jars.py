"""The jars of any Kafka broker, fetched by Maven into the user's cache once per version."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LATEST: Final = "4.4.0"
SINCE_4: Final = ("4.3.1", LATEST) if os.environ.get("KREPAIR_EVERY_BROKER") == "1" else (LATEST,)
VERSIONS: Final = ("2.2.1", "3.9.2", *SINCE_4)
"""The versions that tests try where they try several."""
LOADER_VERSIONS: Final = ("2.2.1", "2.8.2", "3.9.2", *SINCE_4)
"""The same where loaders matter: that of 2.8 is one of its own."""
ENDS: Final = VERSIONS if len(SINCE_4) > 1 else ("2.2.1", LATEST)
"""The same of whole brokers that are started: the gate tries the two ends, and Kafka's classes of each version."""
OLDEST_AND_LATEST: Final = LOADER_VERSIONS if len(SINCE_4) > 1 else ENDS
"""Of whole brokers that are killed."""
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
OTHER_BINDINGS = (
    "slf4j-reload4j-*.jar",
    "slf4j-log4j12-*.jar",
    "log4j-slf4j-impl-*.jar",
    "logback-classic-*.jar",
)


class LabUnavailableError(RuntimeError):
    """Real Kafka cannot be had on this machine; the message says what is missing."""


def cache_root() -> Path:
    """``$XDG_CACHE_HOME`` (or ``~/.cache``) / ``krepair-brokers``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "krepair-brokers"


def release(version: str) -> tuple[int, int]:
    """``2.8.2`` gives ``(2, 8)``."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock: two test processes must not fetch or compile the same thing at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def wanted_artifacts(version: str) -> list[tuple[str, str, str]]:
    """(group, artifact, version) of what a broker of that version needs."""
    line = release(version)
    kafka = "org.apache.kafka"
    wanted = [
        (kafka, "kafka_2.13" if line >= (3, 0) else "kafka_2.12", version),
        (kafka, "kafka-clients", version),
        # one small binding, so that the log comes on stderr and complaints can be read there
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ]
    if line >= (3, 0):
        wanted += [(kafka, "kafka-server-common", version), (kafka, "kafka-storage", version)]
    if line >= (3, 9):
        wanted += [(kafka, "kafka-group-coordinator", version), (kafka, "kafka-tools", version)]
    if line < (3, 0):
        # the client of ZooKeeper 3.4 cannot resolve its server on Java 14 and later (ZOOKEEPER-3779)
        wanted.append(("org.apache.zookeeper", "zookeeper", "3.5.10"))
    return wanted


def pom(name: str, wanted: Iterable[tuple[str, ...]]) -> bytes:
    """A project that depends on these: (group, artifact, version), with a classifier where there is one."""
    project = ET.Element("project", xmlns="http://maven.apache.org/POM/4.0.0")
    head = {
        "modelVersion": "4.0.0",
        "groupId": "krepair.lab",
        "artifactId": name,
        "version": "1",
        "packaging": "pom",
    }
    for tag, text in head.items():
        ET.SubElement(project, tag).text = text
    dependencies = ET.SubElement(project, "dependencies")
    for coordinates in wanted:
        dependency = ET.SubElement(dependencies, "dependency")
        for tag, text in zip(("groupId", "artifactId", "version", "classifier"), coordinates, strict=False):
            ET.SubElement(dependency, tag).text = text
    return ET.tostring(project, encoding="utf-8", xml_declaration=True)


def missing_tools(version: str) -> str:
    """What keeps us from running Kafka of that version, or an empty string."""
    lacking = [tool for tool in ("java", "javac") if shutil.which(tool) is None]
    if not (cache_root() / version / ".complete").exists() and shutil.which("mvn") is None:
        lacking.append("mvn (and there is no cached copy of the jars)")
    return f"Kafka {version} needs {', '.join(lacking)} on the path" if lacking else ""


def fetch(version: str) -> Path:
    """The folder with the jars, fetched if need be.

    Raises:
        LabUnavailableError: when a tool is missing or Maven fails.
    """
    if lacking := missing_tools(version):
        raise LabUnavailableError(lacking)
    return fetched(version, wanted_artifacts(version), without=OTHER_BINDINGS)


def fetched(name: str, wanted: Iterable[tuple[str, ...]], *, without: Iterable[str] = ()) -> Path:
    """The folder of that name in the cache, with the jars that are wanted and all that they need.

    Args:
        name: of the folder.
        wanted: see ``pom``.
        without: patterns of jars that are left out.

    Raises:
        LabUnavailableError: Maven fails.
    """
    folder = cache_root() / name
    complete = folder / ".complete"
    if complete.exists():
        return folder
    with locked(cache_root() / f"{name}.lock"):
        if complete.exists():
            return folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_bytes(pom(name, wanted))
        argv = ["mvn", "-B", "-q", "-f", str(folder / "pom.xml"), COPY, "-DincludeScope=runtime"]
        argv.append(f"-DoutputDirectory={folder}")
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabUnavailableError(
                f"mvn could not fetch Kafka {name}: {(done.stdout + done.stderr)[-1500:]}"
            )
        for pattern in without:  # a second binding would win by luck
            for jar in folder.glob(pattern):
                jar.unlink()
        complete.touch()
    return folder


def classpath(version: str) -> str:
    """All jars of that version, for ``-cp``."""
    return ":".join(str(jar) for jar in sorted(fetch(version).glob("*.jar")))
