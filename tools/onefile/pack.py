"""Packs an interpreter, its libraries, and krepair's packages behind a static launcher, as ``dist/krepair``.

The file needs a Linux kernel on x86-64 and nothing else of the host: ``launcher.c`` unpacks it once, and starts the
carried loader with the carried libc and Python.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import platform
import py_compile
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import lz4.block

LAUNCHER: Final = Path(__file__).with_name("launcher.c")
START: Final = Path(__file__).with_name("start.py")
LAUNCHER_BYTES: Final = 1 << 20
BLOCK_BYTES: Final = 4 << 20
_SIZES: Final = struct.Struct("<II")
_DISK_BLOCK: Final = 4096
_LIBRARY: Final = re.compile(r"\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)")
_LOADER: Final = re.compile(r"ld-linux\S*\.so\.\d+|ld-\d\S*\.so")
_NOT_LOADED: Final = (
    "__pycache__",
    "config-*",
    "dist-packages",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tkinter",
    "turtledemo",
)
"""Folders of the standard library that no verb of krepair loads."""
_MODULES_NOT_LOADED: Final = re.compile(
    r"(_test|_ctypes_test|_curses|_dbm|_gdbm|_sqlite3|_ssl|_tkinter|_xx|nis|ossaudiodev|readline|xxlimited)"
)
"""Extension modules that no verb loads and that would bring libraries of their own."""


class CannotBuildError(Exception):
    """Error: this machine lacks something, said in one sentence."""


def check_machine() -> None:
    """Check that the file can be built here.

    Raises:
        CannotBuildError: another kind of machine, another libc, no compiler, or no static libc.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise CannotBuildError(
            "dist/krepair is built on Linux on x86-64 only; elsewhere take dist/krepair.pyz"
        )
    if platform.libc_ver()[0] != "glibc":
        raise CannotBuildError("dist/krepair carries the loader of glibc, and this machine has another libc")
    if not shutil.which("cc"):
        raise CannotBuildError("dist/krepair needs a C compiler. On Debian: apt install gcc libc6-dev")


def _libraries_of(path: Path) -> Iterator[Path]:
    """Yield the shared libraries that a program or a library of ELF loads, with the loader."""
    ended = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False)
    for line in ended.stdout.splitlines():
        if "not found" in line:
            raise CannotBuildError(f"{path} needs a library that this machine does not have: {line.strip()}")
        if match := _LIBRARY.match(line):
            yield Path(match[1])


def _copy_interpreter(tree: Path) -> None:
    """Copy the program of Python and its standard library."""
    program, stdlib = Path(os.path.realpath(sys.executable)), Path(sysconfig.get_path("stdlib"))
    (tree / "bin").mkdir()
    shutil.copy(program, tree / "bin/python3")
    target = tree / sys.platlibdir / f"python{sysconfig.get_python_version()}"
    shutil.copytree(
        stdlib, target, ignore=shutil.ignore_patterns(*_NOT_LOADED), ignore_dangling_symlinks=True
    )
    for path in (target / "lib-dynload").iterdir():
        if _MODULES_NOT_LOADED.match(path.name):
            path.unlink()


def _copy_libraries(tree: Path) -> str:
    """Copy each library that something in the tree loads and that is not in the tree.

    Returns:
        The name of the loader.
    """
    libraries, loader = tree / "lib", ""
    libraries.mkdir(exist_ok=True)
    programs = [tree / "bin/python3", *(path for path in tree.rglob("*.so*") if path.is_file())]
    for library in {path for program in programs for path in _libraries_of(program)}:
        if library.is_relative_to(tree):
            continue
        shutil.copy(library, libraries / library.name)
        if _LOADER.fullmatch(library.name):
            loader = library.name
    if not loader:
        raise CannotBuildError(f"{programs[0]} names no loader of glibc")
    if shutil.which("strip"):
        own = [tree / "bin/python3", *libraries.glob("*.so*"), *libraries.rglob("lib-dynload/*.so")]
        subprocess.run(["strip", "--strip-unneeded", *map(str, own)], check=True)
    return loader


def _packed(tree: Path, files: list[Path]) -> tuple[int, bytes]:
    """Return the size of the index, and the payload: the index and the blocks, as ``launcher.c`` reads them."""
    index, contents = [], bytearray()
    for path in files:
        name, mode = str(path.relative_to(tree)), 0o755 if os.access(path, os.X_OK) else 0o644
        assert not re.search(r"\s", name), name
        content = path.read_bytes()
        index.append(f"{mode:o} {len(content)} {name}\n")
        contents += content
    blocks = [contents[at : at + BLOCK_BYTES] for at in range(0, len(contents), BLOCK_BYTES)]
    packed = bytearray("".join(index).encode())
    index_bytes = len(packed)
    for block in blocks:
        small = lz4.block.compress(bytes(block), mode="high_compression", compression=9, store_size=False)
        packed += _SIZES.pack(len(small), len(block)) + small
    return index_bytes, bytes(packed)


def _launcher(room: Path, values: dict[str, object]) -> bytes:
    """Compile the launcher for a payload."""
    out = room / "launcher"
    macros = [f"-D{name}={value}" for name, value in values.items()]
    ended = subprocess.run(
        [
            "cc",
            "-std=gnu11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Wno-format-truncation",
            "-static",
            "-s",
            *macros,
            "-o",
            str(out),
            str(LAUNCHER),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise CannotBuildError(
            f"the launcher cannot be linked; is there a static libc? On Debian: apt install libc6-dev\n{ended.stderr}"
        )
    if ended.stderr:
        print(ended.stderr, file=sys.stderr)
    program = out.read_bytes()
    assert len(program) <= LAUNCHER_BYTES
    return program.ljust(LAUNCHER_BYTES, b"\0")


def pack(site: Path, out: Path, room: Path) -> int:
    """Write the file.

    Args:
        site: folder with the packages and the compiled kernels.
        out: path of the file.
        room: folder for what is made on the way.

    Returns:
        Bytes that it takes when it is unpacked.

    Raises:
        CannotBuildError: something is missing here.
    """
    tree = room / "tree"
    tree.mkdir()
    _copy_interpreter(tree)
    shutil.copytree(site, tree / "site")
    shutil.copy(START, tree / "start.py")
    loader = _copy_libraries(tree)
    # The modules are compiled here, and believed whatever the times of their sources are.
    compileall.compile_dir(
        tree, quiet=1, stripdir=str(tree), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    return write_file(tree, loader, out, room)


def write_file(tree: Path, loader: str, out: Path, room: Path) -> int:
    """Write the launcher for a tree, and the tree behind it.

    Args:
        tree: folder that is unpacked on the host.
        loader: name of the loader in its ``lib``.
        out: path of the file.
        room: folder for what is made on the way.

    Returns:
        Bytes that the tree takes when it is unpacked.

    Raises:
        CannotBuildError: the launcher cannot be linked here.
    """
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    index_bytes, payload = _packed(tree, files)
    digest = hashlib.sha256(payload).hexdigest()
    folders = sum(path.is_dir() for path in tree.rglob("*"))
    sizes = [-(-path.stat().st_size // _DISK_BLOCK) * _DISK_BLOCK for path in files]
    unpacked_bytes = sum(sizes) + folders * _DISK_BLOCK
    launcher = _launcher(
        room,
        {
            "LAUNCHER_BYTES": LAUNCHER_BYTES,
            "PAYLOAD_BYTES": len(payload),
            "INDEX_BYTES": index_bytes,
            "BLOCK_BYTES": BLOCK_BYTES,
            "UNPACKED_BYTES": f"{unpacked_bytes}ULL",
            "UNPACKED_FILES": len(files) + folders,
            "PAYLOAD_SHA256": f'"{digest}"',
            "NAME": f'"{digest[:16]}"',
            "LOADER": f'"{loader}"',
        },
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = out.with_name(f".{out.name}.new")
    fresh.write_bytes(launcher + payload)
    fresh.chmod(0o755)
    fresh.rename(out)
    return unpacked_bytes
