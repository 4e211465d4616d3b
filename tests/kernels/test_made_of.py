"""A kernel is cached under a digest of its sources: a change compiles it and its callers, and no other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from krepair.kernels import classes
from krepair.kernels.made_of import made_of

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """
def called(value):
    return value + LOW

def one(value):
    '''What it does.'''
    total = 0
    for step in range(3):
        total += called(value) * HIGH + TABLE[step] + classes.S_ENTRY
    return total
"""


def digest(source: str = SOURCE, **more: Any) -> str:
    names: dict[str, Any] = {
        "LOW": 1,
        "HIGH": np.uint64(2),
        "TABLE": np.arange(3),
        "classes": classes,
        "OTHER": 5,
    }
    names |= more
    names["__name__"] = __name__
    exec(source, names)
    function = names["one"]
    assert isinstance(function, FunctionType)
    return made_of(function)


@pytest.mark.parametrize(
    "source",
    [
        SOURCE,
        "\n\n" + SOURCE,
        SOURCE.replace("What it does", "What it does, in other words"),
        SOURCE.replace("    total = 0", "    # from nothing\n    total = 0"),
        SOURCE + "\n\ndef another(value):\n    return value\n",
    ],
)
def test_what_is_only_for_readers_does_not_count(source: str) -> None:
    assert digest(source) == digest()
    assert digest(source, OTHER=6) == digest()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (SOURCE.replace("total = 0", "total = 1"), {}),
        (SOURCE.replace("value + LOW", "value - LOW"), {}),
        (SOURCE.replace("S_ENTRY", "S_STARTS"), {}),
        (SOURCE, {"LOW": 2}),
        (SOURCE, {"LOW": np.int32(1)}),
        (SOURCE, {"LOW": True}),
        (SOURCE, {"HIGH": np.uint64(3)}),
        (SOURCE, {"TABLE": np.arange(1, 4)}),
        (SOURCE, {"TABLE": np.arange(3, dtype=np.int32)}),
    ],
)
def test_what_becomes_machine_code_counts(source: str, names: dict[str, Any]) -> None:
    assert digest(source, **names) != digest()


def test_a_constant_of_a_module_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest()
    monkeypatch.setattr(classes, "S_ENTRY", 77)
    assert digest() != before


def test_a_value_that_nobody_knows_how_to_compile_is_refused() -> None:
    with pytest.raises(TypeError, match="LOW: it is not known how a value of object is compiled"):
        digest(LOW=object())


_DIGESTS = (
    "from krepair.kernels.jit import KERNELS\n"
    "from krepair.kernels.made_of import made_of\n"
    "from krepair.kernels.warming import all_kernels\n"
    "for name in dict.fromkeys(name for name, _ in all_kernels()):\n"
    "    KERNELS[name].machine()\n"
    "    print(name, made_of(KERNELS[name].py_func))\n"
)


def digests(tree: Path, seed: str) -> dict[str, str]:
    """The digest of each kernel of a copy of krepair, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-c", _DIGESTS],
        capture_output=True,
        text=True,
        check=True,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree), "PYTHONHASHSEED": seed},
    )
    return dict(line.split() for line in ended.stdout.splitlines())


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_change_of_one_kernel_changes_it_and_those_that_call_it(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "krepair", tmp_path / "krepair", ignore=shutil.ignore_patterns("compiled", "__pycache__")
    )
    kernels = tmp_path / "krepair/kernels"
    before = digests(tmp_path, "1")
    assert len(set(before.values())) == len(before)
    changed(
        kernels / "compact_headers.py", "position - run_end > gap_bytes", "position - run_end >= gap_bytes"
    )
    changed(
        kernels / "lz4_frames.py",
        '"""',
        '"""\n\n',
    )
    after = digests(tmp_path, "2")
    assert {name for name in before if before[name] != after[name]} == {"compact_headers.filter_headers"}
    changed(kernels / "instructions.py", "builder.lshr(wide", "builder.ashr(wide")  # of product_high
    last = digests(tmp_path, "3")
    others = {name for name in after if after[name] != last[name]}
    assert {"replica_rows.hash_records", "replica_rows.body_hash"} <= others
    assert not others & {"lz4_frames.lz4_frame", "columns.read_batches", "compact_headers.filter_headers"}
