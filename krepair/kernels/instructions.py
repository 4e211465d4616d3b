"""Compiled implementations of the functions in ``words``: loads, products and CRC-32C steps.

Each of them is one machine instruction. This module loads the compiler, so it is imported only when the first kernel is
called. numba has no big-endian arrays, so kernels take ``uint8`` arrays and load whole words at any position with these
functions. CRC-32C (Castagnoli, RFC 3720) uses the CPU's own instruction on x86-64 (SSE 4.2) and arm64 (CRC extension),
and a table on other CPUs and in some tests. Positions are not checked here: the caller must have checked them.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from krepair.kernels.machine import inlined_by_numba

_POLYNOMIAL = 0x82F63B78


def _make_table() -> np.ndarray[Any, np.dtype[np.uint32]]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(
            table & 1, (table >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), table >> np.uint32(1)
        ).astype(np.uint32)
    return table


CRC_TABLE = _make_table()

# The instruction takes three cycles, but one can start in every cycle. So three pieces are computed side by side.
_LONG_PIECE, _SHORT_PIECE = 1024, 128


def _over_zeros(table: np.ndarray[Any, np.dtype[np.uint32]], states: Any) -> Any:
    return (
        table[0, states & 0xFF]
        ^ table[1, (states >> np.uint32(8)) & 0xFF]
        ^ table[2, (states >> np.uint32(16)) & 0xFF]
        ^ table[3, states >> np.uint32(24)]
    )


def _make_zeros_table(count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Build uint32[4, 256]: the effect of ``count`` zero bytes, a power of two, on each byte of a state."""
    states = np.arange(256, dtype=np.uint32) << (np.arange(4, dtype=np.uint32) * np.uint32(8))[:, None]
    table: np.ndarray[Any, np.dtype[np.uint32]] = (states >> np.uint32(8)) ^ CRC_TABLE[states & 0xFF]
    done = 1
    while done < count:
        table = _over_zeros(table, table)
        done *= 2
    return table


_LONG_ZEROS, _SHORT_ZEROS = _make_zeros_table(_LONG_PIECE), _make_zeros_table(_SHORT_PIECE)


def hardware_crc() -> str:
    """Return the instruction set that computes CRC-32C here: ``sse4.2``, ``arm-crc``, or empty for the table."""
    machine = platform.machine().lower()
    features = llvm.get_host_cpu_features()
    if machine in {"x86_64", "amd64"} and features.get("sse4.2"):
        return "sse4.2"
    if machine in {"aarch64", "arm64"} and (features.get("crc") or platform.system() == "Darwin"):
        return "arm-crc"
    return ""


HARDWARE_CRC = hardware_crc()


def _load(context: Any, builder: Any, signature: Any, args: Any, bits: int, swap: bool) -> Any:
    array_type, _ = signature.args
    array = context.make_array(array_type)(context, builder, args[0])
    pointer = builder.gep(array.data, [args[1]])
    word = ir.IntType(bits)
    value = builder.load(builder.bitcast(pointer, word.as_pointer()), align=1)
    if swap:
        function = builder.module.declare_intrinsic("llvm.bswap", [word])
        value = builder.call(function, [value])
    return value


@intrinsic
def be64(_typing: Any, array: Any, place: Any) -> Any:
    """Load a signed big-endian 64-bit integer from a place of a uint8 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(context, builder, signature, args, 64, swap=True)

    return types.int64(array, types.intp), codegen


@intrinsic
def le64(_typing: Any, array: Any, place: Any) -> Any:
    """Load an unsigned little-endian 64-bit word from a place of a uint8 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(context, builder, signature, args, 64, swap=False)

    return types.uint64(array, types.intp), codegen


@intrinsic
def be32(_typing: Any, array: Any, place: Any) -> Any:
    """Load a signed big-endian 32-bit integer from a place of a uint8 array, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = _load(context, builder, signature, args, 32, swap=True)
        return builder.sext(value, ir.IntType(64))

    return types.int64(array, types.intp), codegen


@intrinsic
def be16(_typing: Any, array: Any, place: Any) -> Any:
    """Load a signed big-endian 16-bit integer from a place of a uint8 array, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = _load(context, builder, signature, args, 16, swap=True)
        return builder.sext(value, ir.IntType(64))

    return types.int64(array, types.intp), codegen


@intrinsic
def byte_at(_typing: Any, array: Any, place: Any) -> Any:
    """Load the byte at a place of a uint8 array; faster than ``array[place]``, which tests for negative places."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(context, builder, signature, args, 8, swap=False)

    return types.uint8(array, types.intp), codegen


@intrinsic
def store64(_typing: Any, array: Any, place: Any, word: Any) -> Any:
    """Put the eight bytes of an unsigned 64-bit word, lowest first, at a place of a uint8 array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array_type = signature.args[0]
        pointer = builder.gep(context.make_array(array_type)(context, builder, args[0]).data, [args[1]])
        builder.store(args[2], builder.bitcast(pointer, _I64.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.uint64), codegen


@intrinsic
def prefetch(_typing: Any, array: Any, place: Any) -> Any:
    """Ask for the memory of an element of an array, counted over all its dimensions; nothing waits for it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        pointer = builder.gep(
            context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]]
        )
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        # to write, keep near, data
        builder.call(
            function, [builder.bitcast(pointer, byte), *(ir.Constant(number, one) for one in (1, 3, 1))]
        )
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@intrinsic
def swapped(_typing: Any, word: Any) -> Any:
    """Return the bytes of an unsigned 64-bit word in reverse order."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.call(builder.module.declare_intrinsic("llvm.bswap", [ir.IntType(64)]), [args[0]])

    return types.uint64(types.uint64), codegen


def _wide_product(builder: Any, args: Any) -> Any:
    wide = ir.IntType(128)
    return builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))


@intrinsic
def product_low(_typing: Any, a: Any, b: Any) -> Any:
    """Return the lower half of the 128-bit product of two unsigned words."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.trunc(_wide_product(builder, args), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def product_high(_typing: Any, a: Any, b: Any) -> Any:
    """Return the upper half of the 128-bit product of two unsigned words."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        wide = _wide_product(builder, args)
        return builder.trunc(builder.lshr(wide, ir.Constant(ir.IntType(128), 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


_I32, _I64, _I8 = ir.IntType(32), ir.IntType(64), ir.IntType(8)


@intrinsic
def _crc_word_sse(_typing: Any, crc: Any, word: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I64, _I64])
        function = builder.module.globals.get("llvm.x86.sse42.crc32.64.64") or ir.Function(
            builder.module, kind, "llvm.x86.sse42.crc32.64.64"
        )
        return builder.call(function, args)

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def _crc_byte_sse(_typing: Any, crc: Any, byte: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I32, _I8])
        function = builder.module.globals.get("llvm.x86.sse42.crc32.32.8") or ir.Function(
            builder.module, kind, "llvm.x86.sse42.crc32.32.8"
        )
        value = builder.call(function, [builder.trunc(args[0], _I32), args[1]])
        return builder.zext(value, _I64)

    return types.uint64(types.uint64, types.uint8), codegen


@intrinsic
def _crc_word_arm(_typing: Any, crc: Any, word: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I32, _I64])
        function = builder.module.globals.get("llvm.aarch64.crc32cx") or ir.Function(
            builder.module, kind, "llvm.aarch64.crc32cx"
        )
        return builder.zext(builder.call(function, [builder.trunc(args[0], _I32), args[1]]), _I64)

    return types.uint64(types.uint64, types.uint64), codegen


@intrinsic
def _crc_byte_arm(_typing: Any, crc: Any, byte: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I32, _I32])
        function = builder.module.globals.get("llvm.aarch64.crc32cb") or ir.Function(
            builder.module, kind, "llvm.aarch64.crc32cb"
        )
        byte = builder.zext(args[1], _I32)
        return builder.zext(builder.call(function, [builder.trunc(args[0], _I32), byte]), _I64)

    return types.uint64(types.uint64, types.uint8), codegen


@inlined_by_numba
def crc32c_table(crc: int, array: Any, start: int, end: int) -> Any:
    """Compute ``crc32c_update`` with a table: for CPUs without the instruction, and for the tests."""
    state = np.uint64(crc) ^ np.uint64(0xFFFFFFFF)
    for place in range(start, end):
        index = np.int64((state ^ np.uint64(array[place])) & np.uint64(0xFF))
        state = (state >> np.uint64(8)) ^ np.uint64(CRC_TABLE[index])
    return np.int64(state ^ np.uint64(0xFFFFFFFF))


if HARDWARE_CRC:
    _crc_word, _crc_byte = (
        (_crc_word_sse, _crc_byte_sse) if HARDWARE_CRC == "sse4.2" else (_crc_word_arm, _crc_byte_arm)
    )

    @inlined_by_numba
    def crc32c_of_57(array: Any, start: int) -> Any:
        """Return the CRC-32C of 57 bytes, which the CRC of a 78-byte marker covers."""
        state = _crc_word(np.uint64(0xFFFFFFFF), le64(array, start))
        state = _crc_word(state, le64(array, start + 8))
        state = _crc_word(state, le64(array, start + 16))
        state = _crc_word(state, le64(array, start + 24))
        state = _crc_word(state, le64(array, start + 32))
        state = _crc_word(state, le64(array, start + 40))
        state = _crc_word(state, le64(array, start + 48))
        state = _crc_byte(state, byte_at(array, start + 56))
        return np.int64((state & np.uint64(0xFFFFFFFF)) ^ np.uint64(0xFFFFFFFF))

    @inlined_by_numba
    def _past_zeros(table: Any, state: Any) -> Any:
        """Return the state after the number of zero bytes for which the table was built."""
        return np.uint64(
            table[0, state & np.uint64(0xFF)]
            ^ table[1, (state >> np.uint64(8)) & np.uint64(0xFF)]
            ^ table[2, (state >> np.uint64(16)) & np.uint64(0xFF)]
            ^ table[3, (state >> np.uint64(24)) & np.uint64(0xFF)]
        )

    @inlined_by_numba
    def _crc_of_three(state: Any, array: Any, place: Any, size: Any, zeros: Any) -> Any:
        """Return the state after three pieces of equal size, computed side by side."""
        first, second, third = state, np.uint64(0), np.uint64(0)
        at, stop = np.int64(place), np.int64(place + size)
        while at < stop:
            first = _crc_word(first, le64(array, at))
            second = _crc_word(second, le64(array, at + size))
            third = _crc_word(third, le64(array, at + 2 * size))
            at += 8
        return _past_zeros(zeros, _past_zeros(zeros, first) ^ second) ^ third

    @inlined_by_numba
    def crc32c_update(crc: int, array: Any, start: int, end: int) -> Any:
        """Return the CRC-32C of ``array[start:end]``, continuing from ``crc`` (0 at first)."""
        state = np.uint64(crc) ^ np.uint64(0xFFFFFFFF)
        place = np.int64(start)
        odd = np.uint64(end - place) & np.uint64(7)
        if odd != 0 and end - place >= 8:
            # The bytes that fill no word come first, in the upper end of a word: the zeros before them change nothing,
            # since the state is put into the bytes themselves. One of them alone would take as long as a word.
            front = (le64(array, place) ^ state) << (np.uint64(8) * (np.uint64(7) - odd)) << np.uint64(8)
            state = _crc_word(np.uint64(0), front) ^ (state >> (np.uint64(8) * odd))
            place += np.int64(odd)
        while place + 3 * _LONG_PIECE <= end:
            state = _crc_of_three(state, array, place, _LONG_PIECE, _LONG_ZEROS)
            place += 3 * _LONG_PIECE
        while place + 3 * _SHORT_PIECE <= end:
            state = _crc_of_three(state, array, place, _SHORT_PIECE, _SHORT_ZEROS)
            place += 3 * _SHORT_PIECE
        while place + 8 <= end:
            state = _crc_word(state, le64(array, place))
            place += 8
        while place < end:
            state = _crc_byte(state, array[place])
            place += 1
        return np.int64((state & np.uint64(0xFFFFFFFF)) ^ np.uint64(0xFFFFFFFF))

else:
    crc32c_update = crc32c_table

    @inlined_by_numba
    def crc32c_of_57(array: Any, start: int) -> Any:
        """Return the CRC-32C of 57 bytes, which the CRC of a 78-byte marker covers."""
        return crc32c_table(0, array, start, start + 57)
