"""Settings of topics that the cluster has on record count before the broker's, and after what was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.logdir.config import ClusterConfigs, load_settings
from krepair.logdir.view import read_log_dir
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from krepair.rules.own_policy import not_asked_for
from krepair.start.metadata_log import see_metadata_log
from tests.builders import NOW_MS
from tests.fixture_dirs import unpack

RECORDED = ClusterConfigs(
    {"state": {"cleanup.policy": "compact"}, "plain": {}}, {"log.retention.ms": "1000"}, "--cluster FILE"
)


@pytest.mark.parametrize(
    ("topic", "key", "value", "source", "known"),
    [
        ("state", "cleanup.policy", "compact", "--cluster FILE", True),
        ("plain", "cleanup.policy", "delete", "default", True),
        ("plain", "retention.ms", "1000", "dynamic log.retention.ms, --cluster FILE", True),
        ("unheard", "cleanup.policy", "delete", "not known", False),
        ("__share_group_state", "retention.ms", "-1", "default of an internal topic", True),
        ("__remote_log_metadata", "retention.ms", "-1", "default of an internal topic", True),
        ("__consumer_offsets", "cleanup.policy", "compact", "default of an internal topic", True),
    ],
)
def test_each_setting_says_where_it_is_from(
    topic: str, key: str, value: str, source: str, known: bool
) -> None:
    found = load_settings(None, None, {}, RECORDED).topic(topic)
    (setting,) = (one for one in found.settings if one.key == key)
    assert (setting.value, setting.source, found.policy_is_known) == (value, source, known)


def test_what_was_typed_counts_first(tmp_path: Path) -> None:
    typed = tmp_path / "topics.json"
    typed.write_text('{"state": {"cleanup.policy": "delete"}}')
    assert not load_settings(None, str(typed), {}, RECORDED).topic("state").compacts
    assert load_settings(None, None, {"retention.ms": "5"}, RECORDED).topic("plain").retention_ms == 5


def test_the_metadata_log_beside_the_partitions_tells_plan_and_check(tmp_path: Path) -> None:
    log_dir = unpack("kraft-4.3.1", tmp_path)
    seen = see_metadata_log([read_log_dir(str(log_dir))])
    assert seen is not None
    recorded = seen.configs("0")
    assert recorded is not None
    assert recorded.topics["__transaction_state"]["cleanup.policy"] == "compact"
    assert "one" in recorded.topics
    plan = make_plan(str(log_dir), Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("compact",)))
    sources = {one.source for one in plan.policy.settings["__transaction_state"]}
    assert "__cluster_metadata-0" in sources


def test_a_dynamic_policy_of_the_broker_is_no_topics_own() -> None:
    """The cleaner compacts such a topic; krepair removes keys only where the topic itself says compact."""
    dynamic = ClusterConfigs({"plain": {}}, {"log.cleanup.policy": "compact"}, "__cluster_metadata-0")
    found = load_settings(None, None, {}, dynamic).topic("plain")
    (policy,) = (one for one in found.settings if one.key == "cleanup.policy")
    assert (found.compacts, policy.source) == (True, "dynamic log.cleanup.policy, __cluster_metadata-0")
    assert "its own configuration does not say" in not_asked_for("plain", policy.value, policy.source)
