"""The command line becomes typed values, or a usage message."""

from __future__ import annotations

import inspect
import re
import shlex
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.cli import verbs
from krepair.cli.main import Verbs
from krepair.cli.options import options_of
from krepair.cli.outcome import VERBS
from krepair.errors import ExitCode, UsageError
from krepair.fixes.table import parse_fixes
from krepair.look.dump.record import AUTO, BASE64, HEX, JSON, TEXT
from krepair.ops.dump import DECODERS
from krepair.options import (
    OPTIONS,
    Options,
    parse_clock_ms,
    parse_delete_horizon,
    parse_partition,
    parse_setting,
    parse_time_ms,
)
from krepair.plan.view import PARTS
from tests.hostile.verbs import run


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-15T00:13:20.123+02:00", 1_700_000_000_123),
        ("2023-11-14", 1_699_920_000_000),
        (" 5 ", 5),
    ],
)
def test_times_are_iso_or_epoch_milliseconds_and_utc_without_a_zone(text: str, milliseconds: int):
    assert parse_time_ms(text, "--now") == milliseconds


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31)))
def test_every_time_of_the_calendar_is_read_to_the_millisecond(moment: datetime):
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    expected = round(moment.replace(tzinfo=UTC).timestamp() * 1000)
    assert parse_time_ms(moment.isoformat(), "--now") == expected


@given(st.text(max_size=100))
def test_any_text_is_a_time_or_wrong_use(text: str):
    with suppress(UsageError):
        assert 0 <= parse_time_ms(text, "--now") < 2**63


@pytest.mark.parametrize("text", ["", "-5", "1969-12-31", "1e9", "٣", str(2**63), "9" * 63, "9" * 5000])
def test_other_times_are_wrong_use(text: str):
    with pytest.raises(UsageError, match="--now"):
        parse_time_ms(text, "--now")


@pytest.mark.parametrize("text", ["1", "1790000000", "2010-12-31T23:59:59Z"])
def test_a_clock_before_there_was_kafka_is_wrong_use_as_seconds_are(text: str):
    with pytest.raises(UsageError, match="and there was no Kafka then"):
        parse_clock_ms(text)
    assert parse_clock_ms("2011-01-01") == 1_293_840_000_000


def test_horizons_are_names_or_times():
    assert parse_delete_horizon("next-pass") == "next-pass"
    assert parse_delete_horizon("newest") == "newest"
    assert parse_delete_horizon("2023-11-14T22:13:20Z") == "1700000000000"
    with pytest.raises(UsageError, match="next-pass, newest"):
        parse_delete_horizon("oldest")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a-0", ("a", 0)),
        ("my-topic-12", ("my-topic", 12)),
        ("__consumer_offsets-7", ("__consumer_offsets", 7)),
    ],
)
def test_the_last_dash_divides_topic_and_number(text: str, expected: tuple[str, int]):
    assert parse_partition(text) == expected


@pytest.mark.parametrize("text", ["", "a", "a-", "-1", "a-x", "a-2147483648", "a-²"])
def test_other_partitions_are_wrong_use(text: str):
    with pytest.raises(UsageError, match="TOPIC-N"):
        parse_partition(text)


def test_settings_are_key_and_value():
    assert parse_setting("a.b=c=d") == ("a.b", "c=d")
    assert parse_setting(" a = ") == ("a", "")
    with pytest.raises(UsageError, match="key=value"):
        parse_setting("=x")


def test_fixes_are_sorted_and_each_once():
    assert parse_fixes("markers, markers") == ("markers",)
    assert parse_fixes("tail=broker,epochs,index") == ("epochs", "index", "tail=broker")
    with pytest.raises(
        UsageError, match="unknown; the names are checkpoints, compact, epochs, index, index=auto"
    ):
        parse_fixes("markers,compat")


def test_indexes_are_mended_in_one_way_at_a_time():
    assert parse_fixes("markers,index=truncate") == ("index=truncate", "markers")
    with pytest.raises(UsageError, match="one mode"):
        parse_fixes("index=truncate,index=regenerate")


def test_words_that_mean_nothing_are_told_from_those_that_do():
    given = options_of({"keep": "until-verified", "assume_high_watermark": "log-end"})
    assert (given.keep, given.assume_high_watermark) == ("until-verified", "log-end")
    for wrong in ("none", "/backup", ""):
        with pytest.raises(
            UsageError, match=f"--keep '{wrong}': expected one of inplace, until-verified, auto"
        ):
            options_of({"keep": wrong})
    with pytest.raises(UsageError, match="log-end"):
        options_of({"assume_high_watermark": "start"})


def test_topics_and_partitions_are_a_union_and_nothing_means_all():
    assert Options().wants("any", 3)
    chosen = Options(topics=("a",), partitions=(("b", 1),))
    assert [chosen.wants(*each) for each in (("a", 9), ("b", 1), ("b", 2), ("c", 1))] == [
        True,
        True,
        False,
        False,
    ]


def test_a_partition_is_looked_up_among_those_named_without_going_through_all_of_them():
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    topics = [Name(f"topic-{number}") for number in range(100)]
    chosen = Options(topics=tuple(topics[:50]), partitions=tuple((topic, 0) for topic in topics[50:]))
    compared = 0
    assert all(chosen.wants(str(topic), 0) for topic in topics)
    assert compared <= 2 * len(topics)
    fewer = replace(chosen, topics=(), partitions=chosen.partitions[:1])
    assert [fewer.wants(str(topic), 0) for topic in topics].count(True) == 1


def verb_function(verb: str) -> Any:
    return getattr(verbs, verb)


def test_every_option_has_one_row_and_every_row_a_verb() -> None:
    taken = {
        name
        for verb in VERBS
        for name in inspect.signature(verb_function(verb)).parameters
        if name in OPTIONS
    }
    assert taken == set(OPTIONS)


def test_rows_of_one_name_say_different_things() -> None:
    said = [(row.names, row.default, row.metavar, row.text) for row in OPTIONS.values()]
    assert all(said.count(each) == 1 for each in said)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reads_no_option_that_it_does_not_take(verb: str) -> None:
    taken = set(inspect.signature(verb_function(verb)).parameters)
    source = inspect.getsource(inspect.unwrap(verb_function(verb)))
    assert set(re.findall(r"\boptions\.(\w+)", source)) <= taken | {"words"}


@pytest.mark.parametrize("verb", VERBS)
def test_an_empty_word_is_not_the_folder_in_which_krepair_was_started(verb: str):
    """``krepair plan "$DIR"`` with a variable that is not set."""
    operands = [one for one in Verbs()[verb].params if one.param_type_name == "argument"]
    for place in range(len(operands)):
        words = ["/nowhere"] * len(operands)
        words[place] = ""
        ran = run(verb, *words)
        assert (ran.code, ran.out) == (ExitCode.USAGE, "")
        assert "found an empty word: is a variable of the shell empty?" in ran.err


TYPED = {
    "fixes": ["tail,epochs", "index"],
    "merge": True,
    "as_broker": True,
    "accepted_losses": ["KR303:t-1:9", "KR302:my-topic-0:12"],
    "replicas": ["2=/b2/a,/b2/b", "3=/b3"],
    "delete_horizon": "2023-11-14T22:13:20Z",
    "keep": "auto",
    "assume_high_watermark": "log-end",
    "cluster": "/c d/describe.txt",
    "only_replica": ["t", "s"],
    "config": "/etc/server.properties",
    "topic_config": "/etc/topics.json",
    "broker_version": "3.9.2",
    "settings": ["segment.bytes=1000", "cleanup.policy=compact,delete"],
    "topics": ["a-b", "c"],
    "partitions": ["a-b-7", "c-0"],
    "now_ms": "1700000000123",
    "scratch": "/scratch",
    "engine": "inline",
    "master": "local[2]",
}


def test_what_is_typed_can_be_typed_again_from_the_words_of_its_values() -> None:
    assert {name for name, option in OPTIONS.items() if option.use} == set(TYPED)
    for chosen in (*([name] for name in TYPED), list(TYPED)):
        given = options_of({"now_ms": "1700000000123"} | {name: TYPED[name] for name in chosen})
        words = given.words("plan", "reading", "clock", "scratch", "place")
        assert Options.of_words(words) == given
        assert set(chosen) <= {name for name in TYPED if OPTIONS[name].names[0] in words}


@pytest.mark.parametrize("words", [("--out", "x"), ("--keep",), ("keep",), ("--keep", "x")])
def test_other_words_of_a_plan_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="expected"):
        Options.of_words(words)


def test_the_choices_in_the_help_are_those_of_the_code() -> None:
    choices = {
        name: tuple(OPTIONS[name].metavar.split("|")) for name in ("section", "decode", "keys", "values")
    }
    forms = (AUTO, TEXT, JSON, HEX, BASE64)
    assert choices == {
        "section": tuple(PARTS), "decode": ("auto", *DECODERS, "none"), "keys": forms, "values": forms,
    }  # fmt: skip


# -- an option that is typed twice is never taken once in silence


def test_fixes_that_are_typed_one_by_one_are_joined() -> None:
    for words in (["epochs", "index"], ["index,epochs"], ["index", "epochs", "index"]):
        assert options_of({"fixes": words}).fixes == ("epochs", "index")
    with pytest.raises(UsageError, match="one mode of tail at a time"):
        options_of({"fixes": ["tail", "tail=broker"]})
    told = run("plan", "/nowhere", "--fix", "epochs", "--fix", "indexes").err
    assert "--fix 'indexes': unknown" in told


@pytest.mark.parametrize("verb", VERBS)
def test_an_option_of_one_value_is_refused_when_it_is_given_twice(verb: str) -> None:
    for option in Verbs()[verb].params:
        if option.param_type_name != "option" or option.is_flag or option.multiple:
            continue
        name = option.opts[0]
        for words, times in (
            ([name, "1", name, "1"], "twice"),
            ([name, "1", f"{name}=2", name, "3"], "3 times"),
        ):
            ran = run(verb, "/nowhere", *words)
            assert ran.code == ExitCode.USAGE, shlex.join(words)
            assert f"{name} is given {times}: it takes one value" in ran.err
            assert f"next: krepair {verb} --help" in ran.err


def test_what_may_be_repeated_and_flags_may_be_given_twice() -> None:
    for words in (
        ("--topic", "a", "--topic", "b"),
        ("--json", "--json"),
        ("--replicas", "2=/a", "--replicas", "3=/b"),
    ):
        assert "is given" not in run("plan", "/nowhere", *words).err
