"""Field lists: the text equals the schema."""

from __future__ import annotations

import pytest

from krepair.formats import cluster_metadata, group_metadata, share_group_state, transaction_state
from krepair.formats.field_lists import read_messages
from krepair.formats.message_schema import LATEST, Field, Schema, front
from tests.encoders import encode_fields as encode

PAIR = (Field("key", "string", "setting"), Field("value", "int8", "its value", nullable=2))


def test_every_word_of_a_field_list_is_read() -> None:
    text = """\
struct Pair
  key   string             | setting
  value int8   nullable=2+ | its value
a thing key 0 api_key=4,7
  id uuid | id | of the thing
a thing value 0-5 flexible=3+ newer=as-latest
  since   int64    1+                   | from 1 on
  between int32    1-2 default=-1       | in two versions
  pairs   []Pair                        | in common
  one     Pair                          | alone
  own     []struct 3+ tag=2 default=[]  | its own
    words []string | words
nothing 0
"""
    assert read_messages(text) == {
        "a thing key": Schema("a thing key", 0, (Field("id", "uuid", "id | of the thing"),), api_keys=(4, 7)),
        "a thing value": Schema(
            "a thing value",
            5,
            (
                Field("since", "int64", "from 1 on", since=1, until=LATEST),
                Field("between", "int32", "in two versions", since=1, until=2, default=-1),
                Field("pairs", "[]struct", "in common", fields=PAIR),
                Field("one", "struct", "alone", fields=PAIR),
                Field(
                    "own",
                    "[]struct",
                    "its own",
                    since=3,
                    tag=2,
                    default=(),
                    fields=(Field("words", "[]string", "words"),),
                ),
            ),
            flexible=3,
            newer_are_read=True,
        ),
        "nothing": Schema("nothing", 0, ()),
    }


@pytest.mark.parametrize(
    "text",
    [
        "name 0 flexibel=0+\n",
        "name 0\n  field int33 | no such type\n",
        "name 0\n  field []Unknown | no such structure\n",
        "name 0\n  field struct | without fields\n",
    ],
)
def test_a_slip_in_a_field_list_stops_the_import(text: str) -> None:
    with pytest.raises(AssertionError):
        read_messages(text)


@pytest.mark.parametrize(
    "module",
    [group_metadata, transaction_state, share_group_state, cluster_metadata],
    ids=lambda one: one.__name__,
)
def test_no_message_stands_twice_in_a_module(module: object) -> None:
    text: str = module.MESSAGES  # type: ignore[attr-defined]
    heads = [line for line in text.splitlines() if not line.startswith((" ", "struct "))]
    assert len(read_messages(text)) == len(heads)


def test_the_front_of_a_message_has_its_version_and_its_numbers() -> None:
    value = b"\0\1" + encode(
        transaction_state.VALUE, 1, {"producer_id": 9, "producer_epoch": 8, "transaction_status": 7}
    )
    found = front(transaction_state.VALUE, "transaction_status", 1).unpack_from(value)
    assert found == (1, 9, 8, 0, 7)
