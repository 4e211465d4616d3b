"""The exceptions with which a step of the loader ends early."""

from __future__ import annotations

from krepair.formats.filenames import offset_name


class StartFailsError(Exception):
    """An exception that no version catches: the log is not loaded, and the broker does not start.

    Attributes:
        file: name of the file that causes it.
        text: what the broker finds there.
    """

    def __init__(self, file: str, text: str) -> None:
        super().__init__(f"{file}: {text}")
        self.file = file
        self.text = text


class CorruptRecordError(Exception):
    """``CorruptRecordException`` or ``InvalidRecordException``: a recovery truncates the log, another read fails."""

    def __init__(self, file: str, text: str) -> None:
        super().__init__(f"{file}: {text}")
        self.file = file
        self.text = text


class CorruptIndexError(Exception):
    """``CorruptIndexException``: the segment is recovered."""


class InvalidOffsetError(Exception):
    """``InvalidOffsetException``: an index entry would have a lower offset than the one before."""

    def __init__(self, file: str, text: str) -> None:
        super().__init__(f"{file}: {text}")
        self.file = file
        self.text = text


class OffsetOverflowError(Exception):
    """``LogSegmentOffsetOverflowException``: an offset that does not fit the base offset of its segment."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(offset_name(base_offset))
        self.base_offset = base_offset
