"""The question of ``plan --ask``, and what an answer of ``facts --answer`` says of it.

A question is in the form of a facts file with another first word. It holds a secret that was drawn for it, and of each
partition a table: two halves of the 128-bit hash of a key under that secret, and the offset of the last tombstone of
that key; ascending by the hash. No record's key stands in it. An answer is a facts file with the digest of the question
and, of each partition, a table of the keys that have an older record: place in the question's table, lowest offset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from krepair.formats.facts_file import FactsReader, FactsWriter
    from krepair.formats.facts_tables import Table

QUESTION_MAGIC: Final = b"krepair question"
QUESTION: Final = "question"
ANSWER: Final = "answer"
SECRET_BYTES: Final = 16
KEY_COLUMNS: Final = 3
ANSWER_COLUMNS: Final = 2
_ASKED: Final = "asked"
_ANSWERED: Final = "answered"


class AskedPartition(Struct, frozen=True, kw_only=True):
    """One partition of a question.

    Attributes:
        topic: topic name.
        partition: partition number.
        topic_id: of the asking replica, 22 characters; it may be empty.
        end: the tombstones of the segments that begin below this offset are asked for.
        keys: rows in its table.
        digest: SHA-256 of this, of the secret and of the table, 64 hex digits.
    """

    topic: str
    partition: int
    topic_id: str
    end: int
    keys: int = 0
    digest: str = ""


class Answered(Struct, frozen=True, kw_only=True):
    """What an answer says of one partition.

    Attributes:
        number: of the partition in the question.
        why: why it is not answered, or empty.
        end: records below this offset were read.
        held: rows in its table: keys of which there is a record below the tombstone.
    """

    number: int
    why: str = ""
    end: int = 0
    held: int = 0


class QuestionMore(Struct, frozen=True, kw_only=True):
    """What the header of a question says besides.

    Attributes:
        secret: key of its hashes, 32 hex digits.
    """

    secret: str


class AnswerMore(Struct, frozen=True, kw_only=True):
    """What the header of an answer says besides.

    Attributes:
        question: digest of the question, 64 hex digits.
        secret: of the question.
        broker_id: of who asks.
        cluster_id: likewise; it may be empty.
        partitions: of the question.
    """

    question: str
    secret: str
    broker_id: str
    cluster_id: str
    partitions: tuple[AskedPartition, ...]


class PartitionDigest:
    """The digest of one partition of a question; rows are given in their order, in pieces of any size."""

    def __init__(self, secret: bytes, one: AskedPartition) -> None:
        head = (one.topic, one.partition, one.topic_id, one.end)
        self._digest = hashlib.sha256(secret + msgspec.msgpack.encode(head))

    def take(self, rows: Table) -> None:
        """The next rows."""
        self._digest.update(rows.astype("<i8").tobytes())

    @property
    def text(self) -> str:
        """64 hex digits."""
        return self._digest.hexdigest()


def write_asked(writer: FactsWriter, partitions: Iterable[AskedPartition]) -> None:
    """Write the list of a question, once all tables are."""
    writer.section(_ASKED, [msgspec.msgpack.encode(tuple(partitions))])


def read_asked(reader: FactsReader) -> tuple[AskedPartition, ...]:
    """The list of a question.

    Raises:
        FactsDamagedError: a block is not as the file says.
        OSError: it cannot be read.
        msgspec.MsgspecError: the list is of another form.
    """
    return msgspec.msgpack.decode(reader.whole(_ASKED), type=tuple[AskedPartition, ...])


def write_answered(writer: FactsWriter, answers: Iterable[Answered]) -> None:
    """Write the list of an answer, once all tables are."""
    writer.section(_ANSWERED, [msgspec.msgpack.encode(tuple(answers))])


def read_answered(reader: FactsReader) -> dict[int, Answered]:
    """Number of a partition -> what the answer says of it. Raises as ``read_asked``."""
    found = msgspec.msgpack.decode(reader.whole(_ANSWERED), type=tuple[Answered, ...])
    return {one.number: one for one in found}


def table_of(number: int) -> str:
    """Name of the section with the table of a partition."""
    return f"table/{number}"
