"""``make bundle``: packs krepair into one file, for a host without network.

``dist/krepair`` has its own interpreter and libc, for x86-64 (``tools/onefile``). ``dist/krepair.pyz`` needs a Python
of the same version, for aarch64. Both hold what the engine inline needs, compiled kernels too, and leave out Spark with
pandas, and what the libraries carry for their own tests and for other uses. Started for the first time each unpacks
itself into a folder of the user.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.onefile.pack import CannotBuildError, check_machine, pack

ROOT: Final = Path(__file__).resolve().parent.parent
NEEDED: Final = (
    "annotated-doc",
    "cramjam",
    "crc32c",
    "javaproperties",
    "jinja2",
    "llvmlite",
    "lz4",
    "markupsafe",
    "msgspec",
    "numba",
    "numpy",
    "pyarrow",
    "python-snappy",
    "rich",
    "shellingham",
    "typer",
    "typing-extensions",
    "zstandard",
)
"""Without pydantic: see ``krepair/cli/verbs.py``. rich draws bars, which takes neither its Markdown nor pygments."""
UNUSED: Final = (
    "*/tests",
    "*/test",
    "*/testing/tests",
    "numba/cuda",
    "numba/core/rvsdg_frontend",
    "numba/np/ufunc/tbbpool*",
    "numba/np/ufunc/omppool*",
    "numpy/f2py",
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/random/lib",
    "numba/**/*.c",
    "numba/**/*.h",
    "numba/**/*.cpp",
    "numpy/**/*.pyi",
    # Of Arrow, dump and groups take arrays and what computes on them; its libraries load each other but for these.
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/*.p[xy][xdi]",
    "pyarrow/libarrow_python.so",
    "pyarrow/libarrow_python.so.*.*.*",
    "pyarrow/libarrow_flight*",
    "pyarrow/libarrow_python_*",
    "pyarrow/libarrow_s3*",
    *(
        f"pyarrow/_{name}*"
        for name in (
            "acero",
            "csv",
            "dataset",
            "feather",
            "flight",
            "json",
            "orc",
            "parquet",
            "pyarrow",
            "substrait",
        )
    ),
    "pyarrow/_*fs.*",
    "*/**/__pycache__",
    "bin",
    "include",
    "share",
)

LEVELS: Final = (
    {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""},
    {"NUMBA_CPU_NAME": "x86-64-v2", "NUMBA_CPU_FEATURES": ""},
)
"""Settings of the compiler for each level that ``krepair/kernels/machine.py`` asks for: no host has to compile."""
WITH_SYMBOLS: Final = ("llvmlite", "lz4", "zstandard")


def wanted(lock: str) -> Iterator[str]:
    """Return the blocks of a lock file for the required packages."""
    for block in re.split(r"\n(?=[a-z])", lock):
        name = re.match(r"[a-z0-9-]+", block)
        if name is not None and name[0] in NEEDED:
            yield block


def pip(*words: str) -> None:
    """Run pip of this environment."""
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words], check=True
    )


def remove_unused(site: Path) -> None:
    """Take away what no verb of krepair loads, and the symbols of the largest libraries."""
    for pattern in UNUSED:
        for path in list(site.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    if shutil.which("strip"):
        # Not those of numpy: libraries whose paths were edited when their wheel was made do not survive it.
        libraries = [path for name in WITH_SYMBOLS for path in (site / name).rglob("*.so")]
        subprocess.run(["strip", "--strip-unneeded", *map(str, libraries)], check=True)


def megabytes(path: Path) -> float:
    """Return the size of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6


def make_site(room: Path) -> Path:
    """Install krepair and what it needs into a folder, with its kernels compiled for each level of processors.

    Args:
        room: an empty folder to fill.
    """
    site, lock = room / "site", room / "lock"
    lock.write_text("\n".join(wanted((ROOT / "requirements.lock").read_text())) + "\n")
    pip("install", "--target", str(site), "--require-hashes", "--no-deps", "--no-compile", "-r", str(lock))
    pip("install", "--target", str(site), "--no-deps", "--no-build-isolation", "--no-compile", str(ROOT))
    remove_unused(site)
    # As another installation would do it, and by the libraries that are in the bundle.
    compiled = str(site / "krepair/kernels/compiled")
    warm = [sys.executable, "-S", "-m", "krepair", "warm", "--into", compiled]
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    for level in LEVELS if os.uname().machine == "x86_64" else ({},):
        subprocess.run(warm, check=True, env={**environment, **level}, cwd=room, stdout=subprocess.DEVNULL)
    return site


def build(out: Path | None, shiv: str) -> None:
    """Build the bundle: one file with its own interpreter on x86-64, ``krepair.pyz`` elsewhere or where it is named.

    Args:
        out: path of the file to be made; None for the one that this machine makes.
        shiv: the command of shiv.
    """
    out = out or Path("dist/krepair" if os.uname().machine == "x86_64" else "dist/krepair.pyz")
    needs_python = out.suffix == ".pyz"
    if not needs_python:
        check_machine()
    with tempfile.TemporaryDirectory(prefix="krepair-bundle-") as name:
        room = Path(name)
        site = make_site(room)
        sizes = sorted(((megabytes(path), path.name) for path in site.iterdir()), reverse=True)[:8]
        out.parent.mkdir(parents=True, exist_ok=True)
        if needs_python:
            unpacked = megabytes(site)
            words = [
                "--site-packages",
                str(site),
                "--compressed",
                "-p",
                "/usr/bin/env python3",
                "-o",
                str(out),
            ]
            subprocess.run([shiv, *words, "-e", "krepair.__main__:main"], check=True)
        else:
            unpacked = pack(site, out, room) / 1e6
        print(f"{out}: {megabytes(out):.0f} MB; unpacked {unpacked:.0f} MB: ", end="")
        print(", ".join(f"{name} {size:.0f}" for size, name in sizes))
        version = ".".join(map(str, sys.version_info[:2]))
        needed = f"Python {version} on " if needs_python else "a kernel of "
        print(f"It needs {needed}{os.uname().sysname} {os.uname().machine}.")


def main() -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(prog="python -m tools.bundle", description=__doc__)
    parser.add_argument("--out", type=Path, help="dist/krepair on x86-64, dist/krepair.pyz elsewhere")
    parser.add_argument("--shiv", default=str(Path(sys.executable).parent / "shiv"))
    chosen = parser.parse_args()
    try:
        build(chosen.out, chosen.shiv)
    except CannotBuildError as missing:
        sys.exit(f"bundle: {missing}")


if __name__ == "__main__":
    main()
