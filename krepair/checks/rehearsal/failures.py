"""The exceptions with which a step of the loader ends early."""

from __future__ import annotations

from krepair.formats.filenames import offset_name


class _FileError(Exception):
    """What a file causes.

    Attributes:
        file: its name.
        text: what the broker finds there.
    """

    def __init__(self, file: str, text: str) -> None:
        super().__init__(f"{file}: {text}")
        self.file = file
        self.text = text


class StartFailsError(_FileError):
    """An exception that no version catches: the log is not loaded, and the broker does not start."""


class CorruptRecordError(_FileError):
    """``CorruptRecordException`` or ``InvalidRecordException``: a recovery truncates the log, another read fails."""


class CorruptIndexError(Exception):
    """``CorruptIndexException``: the segment is recovered."""


class InvalidOffsetError(_FileError):
    """``InvalidOffsetException``: an index entry would have a lower offset than the one before."""


class OffsetOverflowError(Exception):
    """``LogSegmentOffsetOverflowException``: an offset that does not fit the base offset of its segment."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(offset_name(base_offset))
        self.base_offset = base_offset
