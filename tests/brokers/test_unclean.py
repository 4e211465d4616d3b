"""Unclean election that is on for brokers, as a real cluster says it: in tools, in files, in its metadata log."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from krepair.logdir.cluster import METADATA_FOLDER, ClusterView, read_cluster_file
from krepair.logdir.unclean import KEY, ClusterConfig, unclean_of
from tests.lab import beside
from tests.lab.broker import Topic
from tests.lab.jvm import java
from tests.lab.three import CONTROLLER, Three
from tests.lab.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.every_broker]
VERSIONS = ("3.9.2", "4.3.1")
CONFIG = {"retention.ms": "-1"}


def configs(cluster: Three, *words: object) -> str:
    """What ``kafka-configs.sh --bootstrap-server`` prints."""
    argv = java(
        cluster.version,
        "kafka.admin.ConfigCommand",
        "--bootstrap-server",
        cluster.bootstrap,
        *words,
        heap="128m",
    )
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def described(cluster: Three, root: Path) -> ClusterView:
    file = root / "described.txt"
    file.write_text(cluster.describe())
    return read_cluster_file(str(file))


def copied(cluster: Three, root: Path) -> ClusterView:
    """A copy of the active controller's metadata log."""
    target = root / "controller" / METADATA_FOLDER
    shutil.rmtree(target, ignore_errors=True)
    beside.copied(cluster.metadata_dir(CONTROLLER) / METADATA_FOLDER, target)
    return read_cluster_file(str(target))


def all_of(cluster: Three, root: Path, broker: int) -> str:
    """Path of the output of ``--describe --all`` of one broker."""
    file = root / f"all-{broker}.txt"
    file.write_text(
        configs(cluster, "--describe", "--all", "--entity-type", "brokers", "--entity-name", broker)
    )
    return str(file)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_seen_wherever_a_dynamic_setting_of_all_brokers_shows(version: str, tmp_path: Path) -> None:
    with Three(version, tmp_path / "cluster") as cluster:
        cluster.create({"t": Topic(1, CONFIG)})
        cluster.wait_in_sync("t", of=(1, 2, 3))
        view = described(cluster, tmp_path)
        assert unclean_of("t", view, map(ClusterConfig, [all_of(cluster, tmp_path, 1)])).unclean == "off"
        assert unclean_of("t", view, []).unclean == "unknown"
        properties = str(cluster.work / "node-1.properties")
        assert unclean_of("t", view, map(ClusterConfig, [properties])).unclean == "off"
        for value, unclean in (("true", "on"), ("false", "off")):
            change = (
                "--alter",
                "--entity-type",
                "brokers",
                "--entity-default",
                "--add-config",
                f"{KEY}={value}",
            )
            configs(cluster, *change)
            wait_for(
                lambda v=value: f"{KEY}={v}" in Path(all_of(cluster, tmp_path, 1)).read_text(), step_s=0.5
            )
            view = described(cluster, tmp_path)
            assert (
                unclean_of("t", view, map(ClusterConfig, [all_of(cluster, tmp_path, 1)])).unclean == unclean
            )
            # one place that says it is on is enough: the file knows nothing of a dynamic setting
            assert (
                unclean_of("t", copied(cluster, tmp_path), map(ClusterConfig, [properties])).unclean
                == unclean
            )
            assert unclean_of("t", copied(cluster, tmp_path), []).unclean == unclean


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_seen_in_the_file_of_a_broker_and_in_what_the_tool_prints(version: str, tmp_path: Path) -> None:
    with Three(version, tmp_path / "cluster", {KEY: "true"}) as cluster:
        cluster.create({"t": Topic(1, CONFIG), "own": Topic(1, CONFIG | {KEY: "false"})})
        cluster.wait_in_sync("t", "own", of=(1, 2, 3))
        view = described(cluster, tmp_path)
        properties = str(cluster.work / "node-1.properties")
        for given in ([properties], [all_of(cluster, tmp_path, 2)]):
            assert unclean_of("t", view, map(ClusterConfig, given)).unclean == "on"
        # the text shows the setting of the broker that answered; that is enough to refuse
        assert unclean_of("t", view, []).unclean == "on"
        # the metadata log has no static settings
        assert unclean_of("t", copied(cluster, tmp_path), []).unclean == "unknown"
        assert unclean_of("own", copied(cluster, tmp_path), []).unclean == "off"
