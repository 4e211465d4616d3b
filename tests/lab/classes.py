"""Java programs of the lab, each compiled once per version of Kafka and state of its source: what ``java FILE.java``
compiles at each start costs more than a broker's start."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.lab.jars import cache_root, classpath, locked


def compiled(version: str, name: str, source: str) -> Path:
    """The folder with the classes of that source, for the class path.

    Args:
        version: of Kafka, whose jars it needs.
        name: of its public class.
        source: its text.

    Raises:
        RuntimeError: it does not compile.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    folder = cache_root() / "classes" / f"{version}-{name}-{digest}"
    with locked(cache_root() / "classes" / f"{version}.lock"):
        if not (folder / f"{name}.class").exists():
            shutil.rmtree(folder, ignore_errors=True)
            work = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder.parent))
            file = work / f"{name}.java"
            file.write_text(source, encoding="utf-8")
            quietly = ("-nowarn", "-Xlint:none", "-encoding", "UTF-8")
            argv = ["javac", *quietly, "-d", str(work), "-cp", classpath(version), str(file)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(work)
                raise RuntimeError(f"javac of {name} for Kafka {version}: {done.stderr[-3000:]}")
            work.rename(folder)
    return folder
