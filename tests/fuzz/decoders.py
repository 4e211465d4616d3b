"""Table of every decoder of untrusted bytes, with what must hold for any bytes at all.

A decoder gives its documented result and raises nothing but its documented errors. What it has read is held against its
own encoder where there is one. The table is used twice: by the gate (replayed inputs, and short random ones), and by
``tools.torture.fuzz``, which is guided by coverage and runs as long as one lets it.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from krepair.cli.views.writers import markdown
from krepair.commit import journal
from krepair.derive.epochs import epochs_of_log
from krepair.errors import KrepairError, RefusedError, StalePlanError, UnreadableError, UsageError
from krepair.formats import (
    batch_v2,
    checkpoint,
    compression,
    control,
    filenames,
    group_metadata,
    java_numbers,
    message_set,
    meta_properties,
    offset_index,
    partition_metadata,
    producer_snapshot,
    time_index,
    txn_index,
    varint,
)
from krepair.formats import record as records
from krepair.formats.checkpoint import decode_offsets
from krepair.formats.damage import Damage
from krepair.formats.message_schema import decode
from krepair.look.dump.record import json_of
from krepair.plan.model import FORMAT_VERSION, NewFile, NotReversible, Plan, RootPlan
from krepair.plan.planfile import dumps, loads, seal
from krepair.plan.render import plan_view
from krepair.plan.review import review
from krepair.rules.checkpoints import KINDS, repair_offsets
from krepair.rules.epochs import merge_epochs, read_recorded
from tests import builders, codecs, encoders, old_messages
from tests.encoders import encode_fields as encode
from tests.formats import packed_members
from tests.plan.plans import DIGEST, FOLDER, completed_swap, fingerprint, good_plan, partition, replaced_file
from tests.plan.reviewed_loss import aside, log, removed

MOST_BYTES = 1 << 20
"""Of what a compressed input may become here."""


class Decoder(NamedTuple):
    """One decoder.

    Attributes:
        name: of it, and of the folder of its kept inputs.
        attempt: decodes any bytes; raises if something undocumented happens.
        seeds: inputs that it takes, to begin from.
        json: whether an input is lines of JSON: then values are changed, not only bytes.
    """

    name: str
    attempt: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    json: bool = False


def _covers(buf: bytes, parts: list[tuple[int, int]]) -> None:
    """Parts (position, size) follow one another and end with the buffer."""
    position = 0
    for start, size in parts:
        assert start == position
        assert size >= 0
        position += size
    assert position == len(buf)


def _names(error: KrepairError, file: str) -> None:
    assert file in error.message


def batches(data: bytes) -> None:
    """Batches of v2, their CRCs not looked at so that changed bytes get further, and the records in them."""
    parts: list[tuple[int, int]] = []
    for batch in batch_v2.batches(data, check_crc=False):
        if isinstance(batch, Damage):
            parts.append((batch.position, batch.length))
            continue
        position, header = batch
        size = header.size_bytes
        parts.append((position, size))
        body = data[position + batch_v2.HEADER_SIZE : position + size]
        if batch_v2.computed_crc(data, position, size) == header.crc:
            assert batch_v2.encode_batch(header, body) == data[position : position + size]
        assert len(batch_v2.empty_batch(header)) == batch_v2.HEADER_SIZE
        found = list(records.batch_records(data, position, max_bytes=MOST_BYTES))
        assert not any(isinstance(one, Damage) for one in found[:-1])
        _lies_within(data, [one for one in found if isinstance(one, Damage)])
    _covers(data, parts)
    sound = list(batch_v2.batches(data))
    _covers(data, [(b.position, b.length if isinstance(b, Damage) else b.header.size_bytes) for b in sound])
    _lies_within(data, batch_v2.damage(data))


def _lies_within(data: bytes, found: Iterable[Damage]) -> None:
    """Each damage lies in the bytes, and says what was expected."""
    for wrong in found:
        assert 0 <= wrong.position <= wrong.position + wrong.length <= len(data)
        assert wrong.expected


def plain_records(data: bytes) -> None:
    """Records of v2 without compression; the first byte is their number."""
    count, body = (data[0], data[1:]) if data else (0, b"")
    read = encoders.decode_records(body, count)
    assert encoders.decode_records(encoders.encode_records(read), len(read)) == read
    _lies_within(body, encoders.record_damage(body, count))
    if not encoders.record_damage(body, count):
        assert len(read) == count


def controls(data: bytes) -> None:
    key, end = control.decode_key(data), control.decode_end_txn(data)
    if not isinstance(key, Damage):
        assert encoders.encode_control_key(key) == data[: control.KEY.size]
    if not isinstance(end, Damage):
        assert encoders.encode_end_txn(end) == data[: control.END_TXN_VALUE.size]


def messages(data: bytes) -> None:
    """Messages of v0 and v1."""
    parts: list[tuple[int, int]] = []
    for placed in message_set.messages(data, check_crc=False):
        if isinstance(placed, Damage):
            parts.append((placed.position, placed.length))
            continue
        parts.append((placed.position, placed.size_bytes))
        again = encoders.encode_message(placed.message)
        assert encoders.decode_messages(again)[0].message == placed.message
    _covers(data, parts)
    sound = list(message_set.messages(data))
    _covers(data, [(m.position, m.length if isinstance(m, Damage) else m.size_bytes) for m in sound])
    _lies_within(data, message_set.damage(data))


def streams(data: bytes) -> None:
    """A compressed stream; the first byte chooses codec and message format."""
    choice, body = (data[0], data[1:]) if data else (0, b"")
    out = compression.decompress(choice % 8, body, magic=(choice >> 3) % 3, max_bytes=MOST_BYTES)
    assert out.length == len(body) if isinstance(out, Damage) else len(out) <= MOST_BYTES


def offset_checkpoints(data: bytes) -> None:
    found = checkpoint.decode_offsets(data)
    _lies_within(data, found.damage)
    assert isinstance(checkpoint.ends_unchecked(data), bool)
    if not found.damage and data:
        assert found.broker_reads
    ends = {(entry.topic, entry.partition): 10 for entry in found.entries[::2]}
    for kind in KINDS:
        mended = repair_offsets(kind, decode_offsets(data), ends)
        assert all(decision.text for decision in mended.decisions)
        try:
            new = mended.data
        except UsageError:
            continue  # a topic name that no broker has
        assert not repair_offsets(kind, decode_offsets(new), ends).needed


def epoch_checkpoints(data: bytes) -> None:
    _lies_within(data, checkpoint.decode_epochs(data).damage)
    recorded = read_recorded(data)
    merged = merge_epochs(recorded, epochs_of_log((), 0, compacted=False))
    assert all(decision.text for decision in merged.decisions)
    again = merge_epochs(read_recorded(merged.data), epochs_of_log((), 0, compacted=False))
    assert again.entries == merged.entries
    assert not again.needed


def names(data: bytes) -> None:
    """File and folder names, as the system gives bytes that are not UTF-8."""
    name = data.decode("utf-8", "surrogateescape")
    file, folder = filenames.parse_file_name(name), filenames.parse_folder_name(name)
    assert file.name == folder.name == name
    if file.is_canonical and file.base_offset is not None:
        assert filenames.segment_file(file.base_offset, file.kind, file.state) == name
    if folder.is_canonical:
        assert filenames.partition_folder(folder.topic, folder.partition) == name
    plan_id = filenames.plan_id_of(name)
    assert plan_id is None or name in {
        filenames.private_folder(plan_id),
        filenames.root_private_folder(plan_id),
    }
    for bits in (32, 64):
        number = java_numbers.parse_java_integer(name, bits)
        assert number is None or -(1 << (bits - 1)) <= number < 1 << (bits - 1)


def broker_properties(data: bytes) -> None:
    found = meta_properties.decode(data)
    assert isinstance(found, Damage) or found.version in {0, 1}


def topic_ids(data: bytes) -> None:
    found = partition_metadata.decode(data)
    if not isinstance(found, Damage):
        assert partition_metadata.decode(encoders.encode_partition_metadata(found)) == found


def indexes(module: ModuleType, data: bytes, *base_offset: int) -> None:
    """An offset, time or transaction index."""
    assert len(module.view(data)) == len(data) // module.ENTRY_SIZE
    if not module.damage(data):
        assert encoders.encode_index(module, encoders.decode_index(module, data)) == data
    _lies_within(data, module.damage(data, *base_offset))


def snapshots(data: bytes) -> None:
    """Producer snapshots; the CRC is set right first, so that changed entries get further."""
    assert isinstance(producer_snapshot.decode(data), Damage | producer_snapshot.ProducerSnapshot)
    entries = producer_snapshot.view(data)
    assert len(entries) <= len(data) // producer_snapshot.ENTRY.size
    again = encoders.encode_snapshot([producer_snapshot.ProducerEntry(*entry) for entry in entries.tolist()])
    found = producer_snapshot.decode(again)
    assert not isinstance(found, Damage)
    assert producer_snapshot.encode_table(producer_snapshot.table(again)) == again
    assert np.array_equal(producer_snapshot.view(again), entries)


def varints(data: bytes) -> None:
    for read in (varint.read_varint, varint.read_varlong):
        found = read(data, 0, len(data))
        if found is not None:
            written = builders.varint(found.value)
            assert len(written) <= found.end <= len(data)
            assert read(written, 0, len(written)) == (found.value, len(written))


def members(data: bytes) -> None:
    """Subscription and assignment of a member of a consumer group: read, or hex with a reason, and shown as JSON."""
    shown = group_metadata.unpacked_member(packed_members.member(data, data))
    for name, schema in (
        ("subscription", group_metadata.SUBSCRIPTION),
        ("assignment", group_metadata.ASSIGNMENT),
    ):
        assert shown[name] == data
        if f"{name}_problem" in shown:
            assert bytes.fromhex(shown[f"{name}_hex"]) == data
        elif f"{name}_fields" in shown:
            version, fields = min(shown[f"{name}_version"], schema.latest), shown[f"{name}_fields"]
            again = decode(schema, version, encode(schema, version, fields))
            assert again == fields
    assert json_of(shown)


def plans(data: bytes) -> None:
    """A plan file as it is."""
    try:
        plan = loads(data, "p.plan")
    except (UsageError, UnreadableError, StalePlanError) as error:
        _names(error, "p.plan")
        return
    assert dumps(plan) == data
    review(plan)


def sealed_plans(data: bytes) -> None:
    """What a stranger can write, who also knows how a plan is sealed: reviewed and shown without a traceback."""
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    sealed = seal(msgspec.structs.replace(plan, format_version=FORMAT_VERSION))
    assert loads(dumps(sealed), "p.plan") == sealed
    assert all(objection.code and objection.text for objection in review(sealed))
    assert markdown(plan_view(sealed))


def journals(data: bytes) -> None:
    """A journal as it is."""
    try:
        found, whole = journal.decode_lines(data, "journal")
    except RefusedError as error:
        _names(error, "journal")
        return
    assert 0 <= whole <= len(data)
    _journal_round_trip(found)


def sealed_journals(data: bytes) -> None:
    """Journal lines whose CRCs are right, whatever is in them."""
    journals(b"".join(b"%08x %b\n" % (zlib.crc32(line), line) for line in data.split(b"\n")))


def _journal_round_trip(found: list[Any]) -> None:
    written = b"".join(map(journal.encode_line, found))
    assert journal.decode_lines(written, "journal") == (found, len(written))


# -- where to begin --------------------------------------------------------------------------------------------------


def _log() -> bytes:
    made = [
        builders.data(0, 3, pid=5, txn=True),
        builders.commit(3, pid=5),
        builders.emptied(4, 6, pid=5),
        builders.data(7, [builders.Record(None, None, [("h", None)])]),
    ]
    return b"".join(batch.raw for batch in made)


def _compressed_batch(codec: int) -> bytes:
    return codecs.packed(builders.data(10, 4, pid=5).raw, codec)


def _old_log() -> bytes:
    made = [
        old_messages.plain(0, magic=0),
        old_messages.plain(1, None),
        old_messages.wrapper(2, [5, 6, 7]),
        old_messages.wrapper(5, [5, 6], magic=0),
    ]
    return b"".join(batch.raw for batch in made)


def _streams() -> list[bytes]:
    text = b"abcabcabcabc" * 20
    seeds = [bytes((codec + 16,)) + encoders.compress(codec, text) for codec in compression.Codec]
    return [*seeds, b"\x03" + encoders.compress(compression.Codec.LZ4, text, magic=0)]


def _plan_bytes() -> list[bytes]:
    every_change = partition(changes=(*partition().changes, *_OTHER_CHANGES), files=partition().files)
    root = RootPlan(keeper=FOLDER, files=(fingerprint("cleaner-offset-checkpoint", 4),), changes=(_REPLACED,))
    plans_made = [good_plan(), good_plan(every_change), msgspec.structs.replace(good_plan(), root=root)]
    return [dumps(seal(plan)) for plan in plans_made]


def _bare_plans() -> list[bytes]:
    """The same on one line."""
    return [msgspec.json.encode(msgspec.json.decode(data)) for data in _plan_bytes()]


def change_json(data: bytes, chance: random.Random) -> bytes:
    """One value of one line of JSON exchanged, taken out, or put in twice; other bytes stay as they are."""
    lines = data.split(b"\n")
    number = chance.randrange(len(lines))
    try:
        document = msgspec.json.decode(lines[number])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data
    places = list(_places(document))
    if places:
        holder, key = chance.choice(places)
        kind = chance.randrange(6)
        if kind == 0 and isinstance(holder, list):
            holder.insert(key, holder[chance.randrange(len(holder))])
        elif kind == 1:
            del holder[key]
        elif kind == 2:
            other, other_key = chance.choice(places)
            holder[key] = msgspec.json.decode(msgspec.json.encode(other[other_key]))
        elif isinstance(holder[key], int) and kind == 3:
            holder[key] += chance.choice([-1, 1])
        else:
            holder[key] = chance.choice(_ODD_VALUES)
    lines[number] = msgspec.json.encode(document)
    return b"\n".join(lines)


_ODD_VALUES = (
    0,
    1,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    2**64,
    1e300,
    "",
    "..",
    "a/b",
    "\0",
    "\ud7ff\u2028",
    "9" * 30,
    None,
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each (holder, key) of a JSON value."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            yield value, key
            yield from _places(value[key])


_REPLACED = replaced_file("cleaner-offset-checkpoint", folder=".", rule="KR410", size_before=4, size_after=4)
_OTHER_CHANGES = (
    _REPLACED,
    log(300, removed=(removed(),)),
    aside(200, undo=NotReversible(why="it is gone")),
    completed_swap(
        500,
        log_bytes=10,
        goes=(f"{500:020d}.log",),
        copied=(500,),
        makes=(NewFile(name=f"{500:020d}.index", size=8, digest=DIGEST),),
    ),
)


def _journal_lines() -> list[Any]:
    state = journal.FileState(name="0.index", size=8, mtime_ns=1)
    return [
        journal.JournalHeader(magic=journal.MAGIC, version=journal.VERSION, plan_id="00ff", folder=FOLDER),
        (
            journal.Intent(change_id="c", executor="files", originals=(state,)),
            journal.Intent(change_id="d", executor="files", made=(state,)),
        ),
        (journal.Done(change_id="c", state="committed"),),
        (journal.Purge(),),
    ]


def _journal_bytes() -> list[bytes]:
    return [b"".join(map(journal.encode_line, _journal_lines()))]


def _journal_bodies() -> list[bytes]:
    return [b"\n".join(journal.encode_line(line)[9:-1] for line in _journal_lines())]


def _packed() -> list[bytes]:
    versions = packed_members.VERSIONS
    return [*map(packed_members.subscription, versions), *map(packed_members.assignment, versions)]


_OFFSETS = checkpoint.encode_offsets(
    [checkpoint.CheckpointEntry("t", 0, 7), checkpoint.CheckpointEntry("u", 1, 20)]
)
_EPOCHS = checkpoint.encode_epochs([checkpoint.EpochEntry(0, 0), checkpoint.EpochEntry(3, 17)])
_OFFSET_INDEX = encoders.encode_offset_index([encoders.OffsetEntry(3, 100), encoders.OffsetEntry(7, 4200)])
_TIME_INDEX = encoders.encode_time_index([encoders.TimeEntry(5, 3), encoders.TimeEntry(9, 3)])
_TXN_INDEX = txn_index.encode([txn_index.AbortedTxn(0, 5, 1, 3, 4), txn_index.AbortedTxn(0, 6, 2, 9, 9)])
_SNAPSHOT = encoders.encode_snapshot([producer_snapshot.ProducerEntry(5, 0, 2, 9, 1, 1000, 0, -1)])
_TOPIC_ID = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
_NAMES = (
    "00000000000000000007.log",
    "00000000000000000007.timeindex.deleted",
    "leader-epoch-checkpoint",
    "topic-name-12",
    "t-0.0123456789abcdef-delete",
    "krepair~00ff~root",
    "-9223372036854775808",
)

DECODERS = (
    Decoder(
        "batches",
        batches,
        lambda: [
            _log(),
            *map(_compressed_batch, compression.Codec),
            _log()[:-3],
        ],
    ),
    Decoder("plain-records", plain_records, lambda: [b"\x03" + builders.data(0, 3).raw[61:]]),
    Decoder("controls", controls, lambda: [b"\0\0\0\1", b"\0\0\0\0\0\7"]),
    Decoder("messages", messages, lambda: [_old_log()]),
    Decoder("streams", streams, _streams),
    Decoder("offset-checkpoints", offset_checkpoints, lambda: [_OFFSETS, b"0\n-1\na b 3\r\n"]),
    Decoder("epoch-checkpoints", epoch_checkpoints, lambda: [_EPOCHS, b"1\n2\n0 0\n5 4", b"0\n0\n"]),
    Decoder("names", names, lambda: [name.encode() for name in _NAMES]),
    Decoder(
        "broker-properties", broker_properties, lambda: [b"#c\nversion=0\nbroker.id=1\ncluster.id=\\u0041\n"]
    ),
    Decoder("topic-ids", topic_ids, lambda: [_TOPIC_ID]),
    Decoder(
        "offset-indexes", partial(indexes, offset_index), lambda: [_OFFSET_INDEX, _OFFSET_INDEX + bytes(16)]
    ),
    Decoder("time-indexes", partial(indexes, time_index), lambda: [_TIME_INDEX, _TIME_INDEX + bytes(24)]),
    Decoder("txn-indexes", lambda data: indexes(txn_index, data, 7), lambda: [_TXN_INDEX]),
    Decoder("snapshots", snapshots, lambda: [_SNAPSHOT]),
    Decoder("varints", varints, lambda: [builders.varint(-(2**63)), builders.varint(300)]),
    Decoder("members", members, _packed),
    Decoder("plans", plans, _plan_bytes),
    Decoder("sealed-plans", sealed_plans, _bare_plans, json=True),
    Decoder("journals", journals, _journal_bytes),
    Decoder("sealed-journals", sealed_journals, _journal_bodies, json=True),
)
