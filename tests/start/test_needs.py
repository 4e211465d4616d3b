"""Open files and maps of a start: always told; only limits of the host's broker end it, never our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.findings.reports import LogDirReport
from krepair.ops.check import check
from krepair.options import EngineName, Options
from krepair.start import needs
from tests.builders import NOW_MS, LogDir, data

KAFKA = "[Service]\nExecStart=/usr/bin/kafka-server-start.sh \\\n  {}\n"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without units."""
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    etc.mkdir()
    lib.mkdir()
    (tmp_path / "max_map_count").write_text("65530\n")
    monkeypatch.setattr(needs, "UNIT_DIRS", (str(etc), str(lib)))
    monkeypatch.setattr(needs, "MAP_COUNT", str(tmp_path / "max_map_count"))
    return tmp_path


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Forty segments, each with an entry in both of its indexes."""
    made = LogDir(tmp_path / "logs")
    partition = made.partition("t", index_interval_bytes=0)
    for number in range(40):
        partition.segment(data(2 * number, 1), data(2 * number + 1, 1))
    return made.write()


def checked(*log_dirs: Path, version: str = "", config: Path | None = None) -> list[LogDirReport]:
    options = Options(
        engine=EngineName.INLINE,
        now_ms=NOW_MS,
        broker_version=version,
        config=None if config is None else str(config),
    )
    return list(check([str(path) for path in log_dirs], options).log_dirs)


def unit(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("version", "clean", "maps"),
    [("2.2.1", True, 80), ("2.3.1", True, 2), ("", True, 2), ("4.3.1", False, 32)],
)
def test_files_and_maps_by_version(version: str, clean: bool, maps: int, log_dir: Path, host: Path) -> None:
    if not clean:
        (log_dir / ".kafka_cleanshutdown").unlink()
        (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 48\n")
    (report,) = checked(log_dir, version=version)
    assert (report.start_opens_files, report.start_maps_files) == (40, maps)
    assert {line.expected for line in report.forecast} == {"start" if clean else "recover"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"etc/kafka.service": KAFKA + "LimitNOFILE=89\n"}, "LimitNOFILE=89 of {}/etc/kafka.service"),
        ({"etc/kafka.service": KAFKA + "LimitNOFILE=49:90\n"}, ""),  # a JVM raises its limit to the hard one
        ({"etc/kafka.service": KAFKA + "LimitNOFILE=infinity\n"}, ""),
        ({"etc/kafka.service": KAFKA}, ""),
        ({"etc/other.service": "[Service]\nExecStart=/bin/java other.Main\nLimitNOFILE=9\n"}, ""),
        (
            {
                "lib/kafka.service": KAFKA + "LimitNOFILE=100000\n",
                "etc/kafka.service.d/low.conf": "[Service]\nLimitNOFILE=64\n",
            },
            "LimitNOFILE=64 of {}/lib/kafka.service",
        ),
        (
            {
                "etc/kafka.service": KAFKA + "LimitNOFILE=200\n",
                "lib/kafka.service": KAFKA + "LimitNOFILE=20\n",
            },
            "",
        ),
        (
            {
                "etc/a.service": KAFKA + "LimitNOFILE=20\n",
                "etc/b.service": "[Service]\nExecStart=java kafka.Kafka x\n",
            },
            "",  # two, and nothing says which
        ),
    ],
)
def test_the_unit_of_the_broker_ends_the_start(
    files: dict[str, str], limit: str, log_dir: Path, host: Path
) -> None:
    for name, text in files.items():
        unit(host / name, text)
    (report,) = checked(log_dir)
    found = [one.evidence for one in report.findings if one.rule == "KR803"]
    assert len(found) == bool(limit)
    assert all(f"the start holds 40 files open, and {limit.format(host)} is too low" in one for one in found)
    assert {line.expected for line in report.forecast} == {"refuse" if limit else "start"}


def test_of_several_units_that_of_the_configuration_counts_and_all_directories_are_summed(
    log_dir: Path, host: Path
) -> None:
    config = host / "server.properties"
    config.write_text(f"log.dirs={log_dir},{host / 'logs2'}\n")
    other = LogDir(host / "logs2")
    other.partition("u").segment(data(0, 1))
    other.write()
    unit(host / "etc/a.service", KAFKA.format("/elsewhere/server.properties"))
    unit(host / "etc/b.service", KAFKA.format(config) + "LimitNOFILE=90\n")
    assert {line.expected for line in checked(log_dir, config=config)[0].forecast} == {"start"}
    both = checked(log_dir, host / "logs2", config=config)
    assert [{line.expected for line in one.forecast} for one in both] == [
        {"refuse"},
        {"start"},
    ]  # the largest is lost
    assert sum(one.rule == "KR803" for report in both for one in report.findings) == 1


def test_too_few_maps_end_only_the_versions_that_map_every_index(log_dir: Path, host: Path) -> None:
    (host / "max_map_count").write_text("129\n")
    (report,) = checked(log_dir)
    (found,) = [one.evidence for one in report.findings if one.rule == "KR803"]
    assert found.startswith(
        "broker 2.2.1 does not start: the start maps 80 index files, and vm.max_map_count=129"
    )
    assert {line.expected for line in checked(log_dir, version="4.3.1")[0].forecast} == {"start"}
