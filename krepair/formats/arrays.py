"""Type aliases of numpy arrays, by element type."""

from __future__ import annotations

from typing import Any

import numpy as np

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Uint64s = np.ndarray[Any, np.dtype[np.uint64]]
Uint8s = np.ndarray[Any, np.dtype[np.uint8]]
"""Raw bytes in the form that numpy and the kernels read."""
Bools = np.ndarray[Any, np.dtype[np.bool_]]
