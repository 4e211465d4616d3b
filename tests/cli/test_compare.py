"""Command line, output and every exit code of compare and facts."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from krepair.cli.main import app
from krepair.cli.views.comparisons import compare_view
from krepair.cli.views.writers import print_view
from krepair.formats.facts_file import MAGIC
from krepair.ops.compare import CompareReport, MarkedFolder, SideSummary
from krepair.rules.replicas import model as m
from tests.cli.reported import column
from tests.flips import flip
from tests.meta.json_schema import faults
from tests.replicas.real_clusters import sides_of, unpack_cluster

INLINE = ("--engine", "inline")


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(list(words))
    return int(ended.value.code or 0)


@pytest.fixture
def tomb(tmp_path: Path) -> Path:
    unpack_cluster("open-3.9.2-tomb", tmp_path / "tomb")
    return tmp_path / "tomb"


@pytest.mark.parametrize(
    ("name", "code"), [("tomb", 2), ("flip", 2), ("cutmid", 2), ("equal", 0), ("behind", 0), ("future", 0)]
)
def test_the_exit_code_is_the_verdict(name: str, code: int, tmp_path: Path) -> None:
    unpack_cluster(f"open-3.9.2-{name}", tmp_path)
    assert run("compare", *sides_of(tmp_path), *INLINE, "-q") == code


@pytest.fixture
def untold(tomb: Path) -> Path:
    """Broker 1 lacks a segment in the middle of a cleaned log, broker 2 has it; a third one is not given."""
    for file in (tomb / "b1").glob(f"*-0/{23:020d}.*"):
        file.unlink()
    return tomb


def test_what_cannot_be_told_is_a_4(untold: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("compare", *sides_of(untold)[:2], *INLINE) == 4
    text = capsys.readouterr().out
    assert "KR662 missing-or-deleted" in text
    assert "a third replica, or a backup of this one" in text


def test_damage_in_another_partition_makes_a_4_a_2(untold: Path) -> None:
    sides = sides_of(untold)[:2]
    for broker in (1, 2):
        [folder] = (untold / f"b{broker}").glob("*-0")
        shutil.copytree(folder, folder.with_name("other-0"))
    log = untold / "b2" / "other-0" / f"{0:020d}.log"
    flip(log, -1)
    assert run("compare", *sides, *INLINE, "-q", "--partition", folder.name) == 4
    assert run("compare", *sides, *INLINE, "-q", "--partition", "other-0") == 2
    assert run("compare", *sides, *INLINE, "-q") == 2


def test_an_unreadable_replica_is_a_15(tmp_path: Path) -> None:
    unpack_cluster("open-3.9.2-equal", tmp_path)
    [folder] = (tmp_path / "b2").glob("*-0")
    moved = folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(moved)
    assert run("compare", *sides_of(tmp_path), *INLINE, "-q") == 15


def test_wrong_use_and_refusals(tomb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, three = sides_of(tomb)
    assert run("compare", one, one) == 64
    assert run("compare", one) == 64
    assert run("compare", one, "x=y") == 64
    assert run("compare", one, f"3={tomb}/b2") == 13
    assert "broker 2" in capsys.readouterr().err
    other = tmp_path / "other"
    shutil.copytree(tomb / "b2", other)
    text = (other / "meta.properties").read_text()
    lines = ["cluster.id=elsewhere" if "cluster.id" in line else line for line in text.splitlines()]
    (other / "meta.properties").write_text("\n".join(lines))
    assert run("compare", one, f"2={other}") == 13
    assert run("compare", one, f"2={tmp_path}/nothing") == 10
    assert run("compare", one, two, "--format", "pdf") == 64
    assert run("facts", str(tomb / "b1")) == 64
    assert three


def test_facts_of_another_version_damaged_or_foreign(
    tomb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, _ = sides_of(tomb)
    path = tmp_path / "b3.facts"
    assert run("facts", str(tomb / "b3"), "--out", str(path), *INLINE, "-q") == 0
    assert run("compare", one, two, f"3={path}", *INLINE, "-q") == 2
    whole = path.read_bytes()
    newer = bytearray(whole)
    newer[len(MAGIC)] = 9
    for data, code in ((bytes(newer), 13), (whole[:-20], 15), (whole[: len(whole) // 2], 15), (b"", 15)):
        path.write_bytes(data)
        capsys.readouterr()
        assert run("compare", one, two, f"3={path}", *INLINE, "-q") == code
        assert "b3.facts" in capsys.readouterr().err
    path.write_bytes(b"somebody else's")
    assert run("facts", str(tomb / "b3"), "--out", str(path), *INLINE, "-q") == 13
    assert run("facts", str(tomb / "b3"), "--out", f"{tomb}/b3/b3.facts", *INLINE, "-q") == 13


def test_every_form_of_the_page(tomb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = sides_of(tomb)
    html, metrics = tmp_path / "page.html", tmp_path / "m.prom"
    assert run("compare", *sides, *INLINE, "--html", str(html), "--metrics", str(metrics)) == 2
    text = capsys.readouterr().out
    assert "KR650 tombstone-missed from offset 7" in text
    assert "Right in all that was compared: broker 1, 2" in text
    page = html.read_text()
    assert "KR650 tombstone-missed from offset 7" in page
    assert "Right in all that was compared: broker 1, 2" in page
    assert 'krepair_replica_verdicts{verb="compare",verdict="diverged"} 1' in metrics.read_text()
    assert run("compare", *sides, *INLINE, "--format", "md") == 2
    assert capsys.readouterr().out.startswith("# krepair compare")
    assert run("compare", *sides, *INLINE, "--json") == 2
    document = capsys.readouterr().out
    assert faults("compare", document) == []
    [partition] = json.loads(document)["report"]["partitions"]
    assert partition["right"] == [1, 2]
    out = str(tmp_path / "b1.facts")
    assert run("facts", str(tomb / "b1"), "--out", out, *INLINE, "--json") == 0
    assert faults("facts", capsys.readouterr().out) == []


def test_no_text_advises_to_move_a_folder(tomb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("compare", *sides_of(tomb), *INLINE)
    text = capsys.readouterr().out
    assert "Do not move or delete a folder by hand" in text


def test_ten_thousand_healthy_partitions_are_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """Some of them behind, some cleaned further, and a hundred folders that brokers have marked."""
    verdicts = (m.BYTE_EQUAL, m.HARMLESS, m.IS_BEHIND)
    partitions = tuple(_healthy(number, verdicts[number % 3]) for number in range(10_000))
    report = CompareReport(
        sides=tuple(
            SideSummary(
                broker=broker, broker_id="", cluster_id="c", host="h", taken_ms=0, log_dirs=("/mnt/kafka",)
            )
            for broker in (1, 2, 3)
        ),
        counts=dict(Counter(one.verdict for one in partitions)),
        partitions=partitions,
        marked=tuple(
            MarkedFolder(broker=1, folder=f"t-{number}.0-stray", kind="stray", log_dir="/mnt/kafka")
            for number in range(100)
        ),
        engine="inline",
    )
    print_view(compare_view(report))
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 60
    assert re.search(r"^ *log start +3,333$", text, re.MULTILINE)
    assert "90 more are not shown here" in text
    assert report.exit_code == 0


def _healthy(number: int, verdict: str) -> m.PartitionVerdict:
    return m.PartitionVerdict(
        topic="t",
        partition=number,
        verdict=verdict,
        harmless=(m.Harmless("log start", "broker 1 begins earlier"), m.Harmless("epoch-file"))
        if verdict == m.HARMLESS
        else (),
        replicas=tuple(map(column, (1, 2, 3))),
    )
