"""Statements that allow the records of a topic to be compacted by key."""

from __future__ import annotations

import pytest

from krepair.rules.own_policy import not_asked_for


@pytest.mark.parametrize(
    ("topic", "value", "source", "why"),
    [
        ("t", "compact", "topic-config FILE", ""),
        ("t", "compact,delete", "topic-config FILE", ""),
        ("__consumer_offsets", "delete", "default", ""),
        ("t", "delete", "topic-config FILE", "its cleanup.policy is delete"),
        ("t", "", "topic-config FILE", "its cleanup.policy is empty"),
        ("__transaction_state", "delete", "server.properties: log.cleanup.policy", ""),
        ("__consumer_offsets", "delete", "topic-config FILE", "its cleanup.policy is delete"),
        ("t", "compact", "default", "its own configuration does not say"),
        ("t", "compact", "--set", "its own configuration does not say"),
        ("t", "compact", "server.properties: log.cleanup.policy", "its own configuration does not say"),
        ("__share_group_state", "delete", "default", "its own configuration does not say"),
    ],
)
def test_only_the_own_configuration_of_a_topic_lets_its_keys_be_compacted(
    topic: str, value: str, source: str, why: str
) -> None:
    found = not_asked_for(topic, value, source)
    assert found.startswith(why) if why else found == ""
