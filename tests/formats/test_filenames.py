from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.errors import UsageError
from krepair.formats import filenames
from krepair.formats.filenames import FileKind, FolderKind, NameState, parse_file_name, parse_folder_name
from krepair.formats.java_numbers import parse_java_integer

SEGMENT_KINDS = list(filenames.SUFFIXES)
UUID = "0123456789abcdef0123456789abcdef"


@given(st.integers(0, 2**63 - 1), st.sampled_from(SEGMENT_KINDS), st.sampled_from(NameState))
def test_segment_file_name_is_parsed_to_what_it_was_made_of(
    base: int, kind: FileKind, state: NameState
) -> None:
    name = filenames.segment_file(base, kind, state)
    found = parse_file_name(name)
    assert (found.name, found.kind, found.state, found.base_offset) == (name, kind, state, base)
    assert found.is_canonical


@pytest.mark.parametrize(
    ("name", "kind", "state", "base", "canonical"),
    [
        ("00000000000000000042.log", FileKind.LOG, NameState.LIVE, 42, True),
        ("00000000000000000042.log.cleaned", FileKind.LOG, NameState.CLEANED, 42, True),
        ("00000000000000000042.timeindex.swap", FileKind.TIME_INDEX, NameState.SWAP, 42, True),
        ("42.log", FileKind.LOG, NameState.LIVE, 42, False),
        ("+42.log", FileKind.LOG, NameState.LIVE, 42, False),
        ("-42.log", FileKind.LOG, NameState.LIVE, -42, False),
        ("42.copy.log", FileKind.LOG, NameState.LIVE, 42, False),
        ("copy.log", FileKind.LOG, NameState.LIVE, None, False),
        (".log", FileKind.LOG, NameState.LIVE, None, False),
        ("99999999999999999999.index", FileKind.OFFSET_INDEX, NameState.LIVE, None, False),
        ("4_2.index", FileKind.OFFSET_INDEX, NameState.LIVE, None, False),
        ("foo.deleted", FileKind.FOREIGN, NameState.DELETED, None, False),
        ("foo.log.deleted", FileKind.LOG, NameState.DELETED, None, False),
        ("foo.swap", FileKind.FOREIGN, NameState.SWAP, None, False),
        ("foo.cleaned", FileKind.FOREIGN, NameState.CLEANED, None, False),
        ("00000000000000000042.log.bak", FileKind.FOREIGN, NameState.LIVE, 42, False),
        ("notes.txt", FileKind.FOREIGN, NameState.LIVE, None, False),
        ("leader-epoch-checkpoint", FileKind.LEADER_EPOCHS, NameState.LIVE, None, True),
        ("leader-epoch-checkpoint.tmp", FileKind.FOREIGN, NameState.LIVE, None, False),
        ("partition.metadata", FileKind.PARTITION_METADATA, NameState.LIVE, None, True),
        ("", FileKind.FOREIGN, NameState.LIVE, None, False),
    ],
)
def test_file_name_is_taken_apart_as_a_broker_does(
    name: str, kind: FileKind, state: NameState, base: int | None, canonical: bool
) -> None:
    found = parse_file_name(name)
    assert (found.kind, found.state, found.base_offset) == (kind, state, base)
    assert found.is_canonical == canonical


@pytest.mark.parametrize(("base", "kind"), [(-1, FileKind.LOG), (2**63, FileKind.LOG), (0, FileKind.FOREIGN)])
def test_impossible_segment_file_is_wrong_use(base: int, kind: FileKind) -> None:
    with pytest.raises(UsageError, match="no segment file"):
        filenames.segment_file(base, kind)


@given(st.text("ab-._", min_size=1, max_size=249), st.integers(0, 2**31 - 1))
def test_partition_folder_is_parsed_to_what_it_was_made_of(topic: str, partition: int) -> None:
    found = parse_folder_name(filenames.partition_folder(topic, partition))
    assert (found.kind, found.topic, found.partition) == (FolderKind.PARTITION, topic, partition)
    assert found.is_canonical


@pytest.mark.parametrize(
    ("name", "kind", "topic", "partition"),
    [
        ("__consumer_offsets-49", FolderKind.PARTITION, "__consumer_offsets", 49),
        ("a-b--7", FolderKind.PARTITION, "a-b-", 7),
        ("t-00", FolderKind.PARTITION, "t", 0),
        ("t-+1", FolderKind.PARTITION, "t", 1),
        (f"a-b.c-3.{UUID}-delete", FolderKind.DELETE, "a-b.c", 3),
        (f"t-0.{UUID}-future", FolderKind.FUTURE, "t", 0),
        (f"t-0.{UUID}-stray", FolderKind.STRAY, "t", 0),
        ("t-0-delete", FolderKind.FOREIGN, "", -1),
        ("t-delete", FolderKind.FOREIGN, "", -1),
        ("a b-0.x-delete", FolderKind.FOREIGN, "", -1),
        ("lost+found", FolderKind.FOREIGN, "", -1),
        ("krepair-backup", FolderKind.FOREIGN, "", -1),
        ("e-all-0.bak", FolderKind.FOREIGN, "", -1),
        ("-0", FolderKind.FOREIGN, "", -1),
        ("t-", FolderKind.FOREIGN, "", -1),
        ("t-2147483648", FolderKind.FOREIGN, "", -1),
        ("t-1 ", FolderKind.FOREIGN, "", -1),
        ("", FolderKind.FOREIGN, "", -1),
    ],
)
def test_folder_name_is_taken_apart_as_a_broker_does(
    name: str, kind: FolderKind, topic: str, partition: int
) -> None:
    assert parse_folder_name(name) == (name, kind, topic, partition)


@pytest.mark.parametrize("name", ["t-00", "t-+0", f"t-0.{UUID}-delete", "t"])
def test_folder_name_that_no_broker_gives_a_plain_partition_is_not_canonical(name: str) -> None:
    assert not parse_folder_name(name).is_canonical


@given(st.from_regex(r"[0-9a-f]{1,64}", fullmatch=True))
def test_private_folder_is_named_after_its_plan_and_is_nothing_to_a_broker(plan_id: str) -> None:
    folder = filenames.private_folder(plan_id)
    assert folder == f"krepair~{plan_id}"
    assert filenames.plan_id_of(folder) == plan_id
    found = parse_file_name(folder)
    assert (found.kind, found.state, found.base_offset) == (FileKind.FOREIGN, NameState.LIVE, None)


@pytest.mark.parametrize("plan_id", ["", "../x", "abc.log", "ABC", "a" * 65, "a\n"])
def test_plan_id_that_is_not_hex_names_no_folder(plan_id: str) -> None:
    with pytest.raises(UsageError, match="hex digits"):
        filenames.private_folder(plan_id)
    assert filenames.plan_id_of(f"krepair~{plan_id}") is None


@pytest.mark.parametrize(
    ("text", "bits", "value"),
    [
        ("2147483647", 32, 2**31 - 1),
        ("2147483648", 32, None),
        ("-2147483648", 32, -(2**31)),
        ("9223372036854775807", 64, 2**63 - 1),
        ("9223372036854775808", 64, None),
        ("", 64, None),
        ("+", 64, None),
        ("--1", 64, None),
        (" 1", 64, None),
        ("1\n", 64, None),
        ("1_0", 64, None),
        ("0x1", 64, None),
        ("٣", 64, 3),
        ("\U0001d7d9", 64, None),
        ("0" * 5000 + "1", 64, None),
    ],
)
def test_number_is_read_as_java_reads_it(text: str, bits: int, value: int | None) -> None:
    assert parse_java_integer(text, bits) == value
