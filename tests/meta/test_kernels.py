"""``krepair warm`` compiles by names: each of them is a kernel that is there."""

from __future__ import annotations

import importlib

from krepair.kernels.jit import KERNELS
from krepair.kernels.signatures import SIGNATURES


def test_each_row_of_the_signatures_names_a_kernel() -> None:
    for module in {name.partition(".")[0] for name, _ in SIGNATURES}:
        importlib.import_module(f"krepair.kernels.{module}")
    assert [name for name, _ in SIGNATURES if name not in KERNELS] == []
