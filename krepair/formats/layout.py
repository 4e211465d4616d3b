"""Structures of fixed size, each described once as a list of fields.

The list gives the big-endian numpy dtype, the total size, the position of each field, the packer, and the table in the
documentation. Kernels take positions from here too, so that no number is typed twice.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from krepair.errors import UsageError
from krepair.formats.damage import Bytes

STRUCT_CODES = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u4": "I"}


class LayoutField(NamedTuple):
    """One field.

    Attributes:
        name: Kafka's name in snake_case.
        type: ``i1``, ``i2``, ``i4``, ``i8`` (signed) or ``u4``; all are big-endian.
        note: one-line description for the documentation.
    """

    name: str
    type: str
    note: str


class Layout:
    """Consecutive fields without padding.

    Attributes:
        fields: fields in the order of the bytes.
        names: names of the fields, in the same order.
        size: size of the whole structure in bytes.
        dtype: packed big-endian numpy dtype.
        packer: ``struct.Struct`` of the same layout.
    """

    def __init__(self, *fields: LayoutField) -> None:
        self.fields = fields
        self.names = tuple(field.name for field in fields)
        self.packer = struct.Struct(">" + "".join(STRUCT_CODES[field.type] for field in fields))
        self.dtype = np.dtype([(field.name, ">" + field.type) for field in fields])
        self.size = self.packer.size
        self._places: dict[str, int] = {}
        place = 0
        for field in fields:
            self._places[field.name] = place
            place += struct.calcsize(STRUCT_CODES[field.type])

    def place(self, name: str) -> int:
        """Return the position of a field: the byte of the structure at which it starts."""
        return self._places[name]

    def unpack(self, buf: Bytes, position: int = 0) -> tuple[int, ...]:
        """Read one structure; the buffer must hold ``size`` bytes from ``position``."""
        return self.packer.unpack_from(buf, position)

    def pack(self, values: tuple[int, ...]) -> bytes:
        """Write one structure.

        Raises:
            UsageError: a value does not fit its field.
        """
        try:
            return self.packer.pack(*values)
        except struct.error as error:
            raise UsageError(f"a value does not fit its field of {self.names}: {error}") from error

    def view(self, buf: Bytes) -> npt.NDArray[Any]:
        """View all whole structures of a buffer as a read-only array [N] without a copy, ignoring a torn last one."""
        count = len(buf) // self.size
        if count == 0:
            return np.empty(0, self.dtype)
        array = np.frombuffer(buf, self.dtype, count)
        array.flags.writeable = False
        return array

    def table(self) -> list[tuple[int, str, str, str]]:
        """Return the rows of the table in the documentation: position, type, name, note."""
        return [(self.place(field.name), field.type, field.name, field.note) for field in self.fields]
