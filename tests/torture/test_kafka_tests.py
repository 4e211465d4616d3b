"""Some folders of Kafka's own unit tests; ``make torture`` takes all that the tests of three versions make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixture_dirs import unpack
from tests.lab.jars import LATEST
from tests.lab.judge import Judge
from tools.torture.kafka_tests import COMPARISONS, Folder, compared, read

FOLDERS = 20


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Folder]:
    return read(unpack("kafka-tests-4.3.1", tmp_path_factory.mktemp("kept")))


def test_each_folder_is_compared(folders: list[Folder]) -> None:
    assert len(folders) == FOLDERS
    assert all(any(about(one) for one in folders) for about, _ in COMPARISONS.values())


@pytest.mark.broker
@pytest.mark.parametrize("what", COMPARISONS)
def test_what_kafka_does_with_folders_of_its_own_tests_is_what_krepair_says_and_does(
    what: str, folders: list[Folder], judge: Callable[[str], Judge], tmp_path: Path
) -> None:
    figures = compared(what, judge(LATEST), folders, tmp_path)
    assert [text for _, text in figures.wrong] == []
    assert figures.counts.total()
