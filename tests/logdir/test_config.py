"""Settings: Kafka's precedence, its bounds, and the files it prints."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.errors import UsageError
from krepair.logdir.config import Setting, load_settings, recorded_settings

DAY_MS = 86_400_000
DESCRIBED = Path(__file__).parent / "described"
"""What ``kafka-configs.sh`` of a version printed of all topics, with ``--all``, or with ``--zookeeper``."""


def write(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def setting(settings: tuple[Setting, ...], key: str) -> Setting:
    (found,) = (one for one in settings if one.key == key)
    return found


class TestDefaults:
    def test_a_plain_topic_has_the_documented_defaults(self) -> None:
        topic = load_settings(None, None, {}).topic("t")
        assert topic[:-1] == (
            frozenset({"delete"}),
            1 << 30,
            10 << 20,
            4096,
            DAY_MS,
            0,
            7 * DAY_MS,
            1_048_588,
            2**31 - 9,
            False,
            "",
            False,
        )
        assert {one.source for one in topic.settings if one.key != "cleanup.policy"} == {"default"}
        assert setting(topic.settings, "cleanup.policy").source == "not known"
        assert [one.key for one in topic.settings] == sorted(one.key for one in topic.settings)

    @pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
    def test_internal_topics_are_compacted_in_segments_of_100_mib(self, topic: str) -> None:
        found = load_settings(None, None, {}).topic(topic)
        assert (found.compacts, found.segment_bytes) == (True, 100 << 20)

    def test_a_policy_is_known_where_the_topic_was_described_and_not_where_only_the_broker_was(
        self, tmp_path: Path
    ) -> None:
        config = write(tmp_path, "server.properties", "log.cleanup.policy=delete\n")
        topics = write(tmp_path, "topics.json", '{"own": {"cleanup.policy": "delete"}, "none": {}}')

        def known(config: str | None, topics: str | None, overrides: dict[str, str]) -> list[bool]:
            settings = load_settings(config, topics, overrides)
            return [
                settings.topic(name).policy_is_known
                for name in ("own", "none", "other", "__consumer_offsets")
            ]

        assert known(None, None, {}) == [False, False, False, True]
        assert known(config, None, {}) == [False, False, False, True]
        assert known(None, topics, {}) == [True, False, False, True]
        assert known(config, topics, {}) == [True, True, False, True]
        assert known(None, None, {"cleanup.policy": "delete"}) == [True, True, True, True]

    def test_a_log_that_begins_elsewhere_may_be_tiered_where_the_topic_is_not_known(
        self, tmp_path: Path
    ) -> None:
        topics = write(tmp_path, "topics.json", '{"own": {}}')
        settings = load_settings(None, topics, {})
        names = ("own", "other", "__share_group_state")
        assert [bool(settings.topic(name, begins_elsewhere=True).tiered) for name in names] == [
            False,
            True,
            False,
        ]
        assert not settings.topic("other").tiered
        said = load_settings(None, None, {"remote.storage.enable": "false"})
        assert not said.topic("other", begins_elsewhere=True).tiered

    def test_producers_expire_by_the_longer_setting(self) -> None:
        settings = load_settings(None, None, {})
        assert settings.transactional_id_expiration_ms == 7 * DAY_MS
        assert settings.producer_id_expiration_ms == DAY_MS
        assert settings.producer_expiry_ms == 7 * DAY_MS
        longer = load_settings(None, None, {"producer.id.expiration.ms": str(8 * DAY_MS)})
        assert longer.producer_expiry_ms == 8 * DAY_MS
        assert setting(longer.broker, "producer.id.expiration.ms").source == "--set"


class TestServerProperties:
    def test_broker_names_are_mapped_to_topic_keys_with_their_source(self, tmp_path: Path) -> None:
        config = write(
            tmp_path,
            "server.properties",
            "# a comment\nlog.segment.bytes = 1000000 \nlog.index.size.max.bytes:8192\n"
            "log.index.interval.bytes=2048\nlog.cleaner.delete.retention.ms=\\\n   5000\n"
            "log.cleaner.min.compaction.lag.ms=7\nlog.cleanup.policy=compact , delete\n"
            "message.max.bytes=99\nlog.retention.bytes=-5\nsegment.bytes=3\nlisteners=x\n",
        )
        topic = load_settings(config, None, {}).topic("t")
        assert topic[:-1] == (
            frozenset({"compact", "delete"}),
            1_000_000,
            8192,
            2048,
            5000,
            7,
            7 * DAY_MS,
            99,
            2**31 - 9,
            False,
            "",
            False,
        )
        assert setting(topic.settings, "segment.bytes") == Setting(
            "segment.bytes", "1000000", "server.properties: log.segment.bytes"
        )
        assert setting(topic.settings, "cleanup.policy").value == "compact,delete"
        assert setting(topic.settings, "retention.bytes").value == "-5"

    @pytest.mark.parametrize(
        ("lines", "expected", "name"),
        [
            (["log.retention.hours=2"], 7_200_000, "hours"),
            (["log.retention.hours=2", "log.retention.minutes=3"], 180_000, "minutes"),
            (["log.retention.ms=4", "log.retention.hours=2", "log.retention.minutes=3"], 4, "ms"),
            (["log.retention.minutes=-7"], -1, "minutes"),
        ],
    )
    def test_the_finest_unit_of_retention_counts(
        self, tmp_path: Path, lines: list[str], expected: int, name: str
    ) -> None:
        topic = load_settings(write(tmp_path, "s", "\n".join(lines)), None, {}).topic("t")
        assert topic.retention_ms == expected
        assert setting(topic.settings, "retention.ms").source == f"server.properties: log.retention.{name}"

    def test_of_a_key_that_stands_twice_the_last_one_counts(self, tmp_path: Path) -> None:
        config = write(tmp_path, "s", "log.segment.bytes=100\nlog.segment.bytes=200\n")
        assert load_settings(config, None, {}).topic("t").segment_bytes == 200

    def test_internal_topics_have_their_own_segment_size(self, tmp_path: Path) -> None:
        config = write(
            tmp_path,
            "s",
            "log.segment.bytes=100\nlog.cleanup.policy=delete\noffsets.topic.segment.bytes=200\n"
            "transaction.state.log.segment.bytes=300\n",
        )
        settings = load_settings(config, None, {})
        offsets = settings.topic("__consumer_offsets")
        assert (offsets.segment_bytes, offsets.compacts) == (200, True)
        assert setting(offsets.settings, "segment.bytes") == Setting(
            "segment.bytes", "200", "server.properties: offsets.topic.segment.bytes"
        )
        assert settings.topic("__transaction_state").segment_bytes == 300
        assert settings.topic("t").segment_bytes == 100

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("log.segment.bytes=1G", "expected a whole number of 32 bits, found '1G'"),
            ("log.segment.bytes=2147483648", "expected a whole number of 32 bits"),
            ("log.segment.bytes=13", "expected at least 14"),
            ("log.retention.hours=x", "expected a whole number, found 'x'"),
            ("log.cleanup.policy=shred", "expected compact, delete or both, found 'shred'"),
            ("log.index.interval.bytes=", "expected a whole number of 32 bits, found ''"),
            ("producer.id.expiration.ms=0", "expected at least 1"),
            ("a=\\uZZZZ", "expected Java properties"),
            ("log.dirs=/a\0b", "log.dirs has a zero byte"),
        ],
    )
    def test_a_wrong_value_is_an_error_with_file_and_line(
        self, tmp_path: Path, line: str, expected: str
    ) -> None:
        config = write(tmp_path, "s", f"# one\nx=\\\n  y\n\n{line}\n")
        with pytest.raises(UsageError, match=expected) as caught:
            load_settings(config, None, {})
        assert caught.value.message.startswith(f"{config}:5: ")

    def test_a_missing_file_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="No such file"):
            load_settings(str(tmp_path / "none"), None, {})
        with pytest.raises(UsageError, match="Is a directory"):
            load_settings(None, str(tmp_path), {})

    @given(st.binary(max_size=200))
    def test_any_bytes_are_settings_or_a_usage_error(
        self, tmp_path_factory: pytest.TempPathFactory, data: bytes
    ) -> None:
        path = tmp_path_factory.mktemp("c") / "f"
        path.write_bytes(data)
        for files in ((str(path), None), (None, str(path))):
            try:
                assert load_settings(*files, {}).topic("t").segment_bytes > 0
            except UsageError as error:
                if not error.message.startswith(str(path)):
                    raise


class TestTopicFile:
    def test_json_counts_before_the_broker(self, tmp_path: Path) -> None:
        server = write(tmp_path, "s", "log.segment.bytes=100\nlog.retention.ms=5\n")
        topics = write(
            tmp_path,
            "t.json",
            json.dumps(
                {
                    "a": {"segment.bytes": 200, "remote.storage.enable": True, "some.new.key": "?"},
                    "__consumer_offsets": {"segment.bytes": "300", "cleanup.policy": "delete"},
                }
            ),
        )
        settings = load_settings(server, topics, {})
        a = settings.topic("a")
        assert (a.segment_bytes, a.retention_ms, bool(a.tiered)) == (200, 5, True)
        assert setting(a.settings, "segment.bytes").source == f"topic-config {topics}"
        offsets = settings.topic("__consumer_offsets")
        assert (offsets.segment_bytes, offsets.compacts) == (300, False)
        assert settings.topic("b").segment_bytes == 100
        assert tuple(sorted(settings._topics)) == ("__consumer_offsets", "a")

    def test_the_describe_output_of_2_2_is_read(self, tmp_path: Path) -> None:
        topics = write(
            tmp_path,
            "t",
            "Configs for topic 'a' are cleanup.policy=compact,delete,segment.bytes=200,"
            "leader.replication.throttled.replicas=0:1,1:2\nConfigs for topic 'b-c.d' are \n"
            "Configs for topic '__consumer_offsets' are segment.bytes=104857600,cleanup.policy=compact\n",
        )
        settings = load_settings(None, topics, {})
        a = settings.topic("a")
        assert (a.cleanup_policy, a.segment_bytes) == (frozenset({"compact", "delete"}), 200)
        assert tuple(sorted(settings._topics)) == ("__consumer_offsets", "a", "b-c.d")

    def test_the_describe_output_of_3_9_is_read(self, tmp_path: Path) -> None:
        topics = write(
            tmp_path,
            "t",
            "Dynamic configs for topic a are:\n"
            "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy="
            "compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
            "  segment.bytes=200 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=200}\n"
            "All configs for topic b are:\n  delete.retention.ms=9 sensitive=false synonyms={}\n\n"
            "  max.message.bytes=10\nDynamic configs for topic c are:\n",
        )
        settings = load_settings(None, topics, {})
        a, b = settings.topic("a"), settings.topic("b")
        assert (a.cleanup_policy, a.segment_bytes) == (frozenset({"compact", "delete"}), 200)
        assert (b.delete_retention_ms, b.max_message_bytes) == (9, 10)
        assert tuple(sorted(settings._topics)) == ("a", "b", "c")

    @pytest.mark.parametrize(
        "printed", ["2.2.1-zookeeper", "2.8.2-zookeeper", "2.8.2", "3.9.2", "4.3.1"], ids=str
    )
    def test_what_the_tool_of_a_version_has_printed_is_read(self, printed: str) -> None:
        settings = load_settings(None, str(DESCRIBED / f"{printed}.txt"), {})
        compacted, plain = settings.topic("compacted"), settings.topic("plain")
        assert tuple(sorted(settings._topics)) == ("compacted", "plain")
        assert compacted.cleanup_policy == frozenset({"compact", "delete"})
        assert compacted.delete_retention_ms == 1000
        assert (plain.cleanup_policy, plain.delete_retention_ms) == (frozenset({"delete"}), DAY_MS)

    def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(self, tmp_path: Path) -> None:
        path = tmp_path / "t"
        path.write_bytes(b"\xef\xbb\xbfDynamic configs for topic a are:\r\n  segment.bytes=200\r\n")
        assert load_settings(None, str(path), {}).topic("a").segment_bytes == 200

    def test_a_pipe_is_read_as_a_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        writer = threading.Thread(
            target=(tmp_path / "pipe").write_text, args=['{"a": {"segment.bytes": 77}}']
        )
        writer.start()
        settings = load_settings(None, str(tmp_path / "pipe"), {})
        writer.join()
        assert settings.topic("a").segment_bytes == 77

    @pytest.mark.parametrize(
        ("text", "place", "expected"),
        [
            ('{"a": {"segment.bytes": "x"}}', " topic 'a'", "segment.bytes: expected a whole number"),
            ('{"b": {"segment.bytes": 20}, "a": {"segment.bytes": 1}}', " topic 'a'", "at least 14"),
            ('{"a": {"segment.bytes": 1.5}}', " topic 'a'", "expected a text or a whole number"),
            ('{"a": [1]}', " topic 'a'", "expected an object"),
            ('{\n"a": ', 2, "expected JSON"),
            ("Configs for topic 'a' are x=1\nwhat?\n", 2, "found 'what\\?'"),
            ("Configs for topic 'a' are rubbish\n", 1, "expected key=value"),
            ("  segment.bytes=1\n", 1, "expected JSON or a line of"),
            ("Dynamic configs for topic a are:\n  segment.bytes=1\n", 2, "at least 14"),
        ],
    )
    def test_what_is_wrong_is_named_with_file_and_line_or_topic(
        self, tmp_path: Path, text: str, place: int | str, expected: str
    ) -> None:
        path = write(tmp_path, "t", text)
        with pytest.raises(UsageError, match=expected) as caught:
            load_settings(None, path, {})
        assert caught.value.message.startswith(f"{path}:{place}: ")

    @pytest.mark.parametrize("text", ['{"a": {}, "a": {}}', "[" * 5, "{" + '"a":{' * 100_000, "[]", "null"])
    def test_other_documents_are_usage_errors(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(UsageError):
            load_settings(None, write(tmp_path, "t", text), {})

    @given(
        st.dictionaries(
            st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
            st.integers(14, 2**31 - 1),
            max_size=6,
        )
    )
    def test_all_three_forms_say_the_same(
        self, tmp_path_factory: pytest.TempPathFactory, sizes: dict[str, int]
    ) -> None:
        folder = tmp_path_factory.mktemp("forms")
        pairs = sizes.items()
        forms = [
            json.dumps({topic: {"segment.bytes": str(size)} for topic, size in pairs}),
            "".join(f"Configs for topic '{t}' are retention.ms=1,segment.bytes={n}\n" for t, n in pairs),
            "".join(
                f"Dynamic configs for topic {t} are:\n  segment.bytes={n} sensitive=false synonyms={{}}\n"
                for t, n in pairs
            ),
        ]
        for number, form in enumerate(forms):
            settings = load_settings(None, write(folder, str(number), form), {})
            assert {
                topic: settings.topic(topic).segment_bytes for topic in tuple(sorted(settings._topics))
            } == sizes


class TestSet:
    def test_it_counts_before_everything(self, tmp_path: Path) -> None:
        server = write(tmp_path, "s", "log.segment.bytes=100\n")
        topics = write(tmp_path, "t", '{"a": {"segment.bytes": 200}}')
        settings = load_settings(server, topics, {"segment.bytes": "300"})
        for topic in ("a", "b", "__consumer_offsets"):
            found = settings.topic(topic)
            assert found.segment_bytes == 300
            assert setting(found.settings, "segment.bytes").source == "--set"

    def test_a_broker_wide_size_given_alone_is_for_its_own_topic(self) -> None:
        settings = load_settings(None, None, {"offsets.topic.segment.bytes": "200"})
        assert settings.topic("__consumer_offsets").segment_bytes == 200
        assert settings.topic("__transaction_state").segment_bytes == 100 << 20

    @pytest.mark.parametrize(
        ("key", "value", "expected"),
        [
            ("delete.retention", "1", "expected one of cleanup.policy, delete.retention.ms"),
            ("delete.retention.ms", "-1", "--set delete.retention.ms: expected at least 0"),
            ("remote.storage.enable", "yes", "expected true or false"),
        ],
    )
    def test_a_wrong_key_or_value_is_an_error(self, key: str, value: str, expected: str) -> None:
        with pytest.raises(UsageError, match=expected):
            load_settings(None, None, {key: value})


def test_a_file_without_any_key_of_a_broker_is_no_server_properties(tmp_path: Path) -> None:
    path = tmp_path / "producer.properties"
    path.write_text("bootstrap.servers=localhost:9092\nacks=all\n")
    with pytest.raises(UsageError, match="no key of a broker's configuration"):
        load_settings(str(path), None, {})
    path.write_text("broker.id=1\n")
    load_settings(str(path), None, {})


@pytest.mark.parametrize(("source", "known"), [("not known", False), ("topic-config t.json", True)])
def test_apply_knows_of_a_policy_what_the_plan_knew(source: str, known: bool) -> None:
    settings = recorded_settings({"t": [Setting("cleanup.policy", "delete", source)]})
    assert settings.topic("t").policy_is_known is known
