"""``--metrics``: the file is complete, follows the rules of the text format, and agrees with the run's report."""

from __future__ import annotations

import errno
import json
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from krepair.cli.views import metrics
from krepair.durable.real_disk import RealDisk
from krepair.durable.writing_error import WritingError
from krepair.errors import ExitCode
from tests import builders
from tests.builders import NOW_MS, commit, data
from tests.flips import flip
from tests.hostile.verbs import CONTROL, picture, run

ROOT = Path(__file__).resolve().parents[2]
DOC = ROOT / "docs" / "metrics.md"
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (-?[0-9]+(?:\.[0-9]+)?)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(raw: bytes) -> Samples:
    """Text format 0.0.4, strictly: HELP, TYPE, samples of a family in one run, none twice, newline at the end."""
    text = raw.decode("utf-8")
    assert text.endswith("\n")
    samples: Samples = {}
    described: list[str] = []
    typed: list[str] = []
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            described.append(line.split(" ")[2])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert (described[-1], kind) == (name, "gauge")
            typed.append(name)
        elif not line.startswith("#"):
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] == typed[-1], line
            labels, place = {}, 0
            while place < len(found[2]):
                label = LABEL.match(found[2], place)
                assert label, line
                labels[label[1]] = re.sub(r"\\.", lambda each: UNESCAPED[each[0]], label[2])
                place = label.end()
            key = found[1], frozenset(labels.items())
            assert key not in samples
            samples[key] = float(found[3])
    assert len(set(typed)) == len(typed) == len(described)
    return samples


def one(samples: Samples, name: str, **labels: str) -> float:
    [value] = [
        value
        for (found, mine), value in samples.items()
        if found == name and labels.items() <= dict(mine).items()
    ]
    return value


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return bloated(tmp_path / "logs")


def bloated(root: Path) -> Path:
    made = builders.LogDir(root)
    partition = made.partition("__consumer_offsets")
    old = NOW_MS - 40 * 86_400_000
    for place in range(0, 40, 2):
        partition.segment(
            builders.emptied(place, pid=place, timestamp=old),
            commit(place + 1, pid=place, timestamp=old),
            mtime_ms=old,
        )
    partition.segment(data(40, 2), mtime_ms=NOW_MS)
    return made.write()


def test_every_verb_writes_what_it_reported(log_dir: Path, tmp_path: Path) -> None:
    plan, where = str(tmp_path / "plan"), str(log_dir)
    now = ("--now", str(NOW_MS))
    runs: dict[str, tuple[str, ...]] = {
        "check": ("check", where, *now), "plan": ("plan", where, "--out", plan, *now),
        "apply": ("apply", plan), "verify": ("verify", plan),
    }  # fmt: skip
    for verb, words in runs.items():
        file = tmp_path / f"{verb}.prom"
        before = picture(log_dir)
        ran = run(*words, "--engine", "inline", "--json", "--metrics", str(file))
        assert verb == "apply" or picture(log_dir) == before
        report: Any = json.loads(ran.out)["report"]
        samples = parsed(file.read_bytes())
        assert one(samples, "krepair_last_run_exit_code", verb=verb) == ran.code
        assert one(samples, "krepair_last_run_duration_seconds", verb=verb) >= 0
        assert one(samples, "krepair_last_run_timestamp_seconds", verb=verb) > 1.7e9
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        if verb == "check":
            [one_dir] = report["log_dirs"]
            counts = Counter(finding["rule"] for finding in one_dir["findings"])
            assert counts
            for rule, count in counts.items():
                assert one(samples, "krepair_findings", rule=rule, log_directory=where) == count
            wasted = sum(finding["bytes"] for finding in one_dir["findings"] if finding["rule"] == "KR101")
            assert one(samples, "krepair_reclaimable_bytes", log_directory=where) == wasted > 0
            assert one(samples, "krepair_uncleanable_bytes") == one_dir["uncleanable_bytes"]
        elif verb == "plan":
            promised = one(samples, "krepair_reclaimable_bytes", log_directory=where)
            assert promised == report["freed_at_purge"] > 0
            taken = size_of(log_dir)
        elif verb == "apply":
            freed = sum(result["bytes_freed"] for result in report["results"])
            assert one(samples, "krepair_reclaimed_bytes", log_directory=where) == freed
        else:
            assert one(samples, "krepair_problems") == 0
    assert sorted(path.name for path in tmp_path.iterdir() if "tmp" in path.name) == []
    assert run("purge", plan).code == 0
    # sizes of new indexes are bounds: what is freed is never less than what is said
    assert promised <= taken - size_of(log_dir) <= promised + 8 * 4096


def size_of(log_dir: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in log_dir.rglob("*") if path.is_file())


def test_run_that_fails_says_so_in_place_of_the_old_figures(log_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "check.prom"
    run("check", str(log_dir), "--engine", "inline", "--metrics", str(file))
    ran = run("check", str(tmp_path / "nothing"), "--metrics", str(file))
    samples = parsed(file.read_bytes())
    assert one(samples, "krepair_last_run_exit_code") == ran.code == ExitCode.NOT_A_LOG_DIR
    assert {name for name, _ in samples} == {
        f"krepair_last_run_{what}" for what in ("exit_code", "duration_seconds", "timestamp_seconds")
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), ExitCode.UNREADABLE),
        (PermissionError(errno.EACCES, "no", "/x"), ExitCode.UNREADABLE),
        (WritingError(errno.ENOSPC, "full", "/x"), ExitCode.UNWRITABLE),
        (OSError(errno.ENOSPC, "full"), ExitCode.UNWRITABLE),
        (KeyboardInterrupt(), 130),
        (ValueError("a mistake"), ExitCode.BUG),
    ],
)
def test_metrics_of_a_run_that_an_error_ends_have_the_exit_code_of_the_process(
    error: BaseException, code: int, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("krepair.ops.check.check", fail)
    file = tmp_path / "check.prom"
    assert run("check", str(log_dir), "--metrics", str(file)).code == code
    assert one(parsed(file.read_bytes()), "krepair_last_run_exit_code") == code


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("logs/check.prom", None, ExitCode.REFUSED),
        ("check.txt", None, ExitCode.USAGE),
        ("no/such/check.prom", None, ExitCode.USAGE),
        ("theirs.prom", b"node_up 1\n", ExitCode.REFUSED),
    ],
)
def test_bad_place_is_refused_before_the_work_and_nothing_is_overwritten(
    log_dir: Path, tmp_path: Path, name: str, content: bytes | None, code: ExitCode
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    before = picture(log_dir)
    ran = run("check", str(log_dir), "--engine", "inline", "--metrics", str(file))
    assert (ran.code, ran.out) == (code, "")
    assert picture(log_dir) == before
    assert (file.read_bytes() if file.exists() else None) == content


def test_plan_of_the_same_run_is_not_overwritten_by_its_metrics(log_dir: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "both.prom")
    ran = run(
        "plan", str(log_dir), "--engine", "inline", "--out", file, "--metrics", file, "--now", str(NOW_MS)
    )
    assert ran.code == ExitCode.FOUND
    assert "cannot write the metrics" in ran.err
    assert run("show", file).code in {ExitCode.DONE, ExitCode.FOUND}


def test_metrics_that_cannot_be_written_change_no_exit_code_and_leave_the_old_ones(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "check.prom"
    words = ("check", str(log_dir), "--engine", "inline", "--metrics", str(file))
    first, old = run(*words), file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RealDisk, "rename", full)
    ran = run(*words)
    assert (ran.code, file.read_bytes()) == (first.code, old)
    assert "No space left" in ran.err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".check")] == []


@pytest.mark.parametrize("name", ['a"b\\c\nd', "caf\u00e9", "\udcff", "x\x1b[31m"])
def test_any_name_of_a_log_directory_is_one_label(name: str) -> None:
    family = metrics.Family("krepair_findings", "x", (({"log_directory": name}, 3),))
    [(_, labels)] = parsed(metrics.render([family]))
    shown = dict(labels)["log_directory"]
    assert shown == (name if name != "\udcff" else "\\udcff")


@pytest.fixture
def brokers(tmp_path: Path) -> tuple[str, str]:
    """Log directories of two brokers: the last batch of the second one is damaged."""
    found = []
    for number in (1, 2):
        root = bloated(tmp_path / f"b{number}")
        (root / "meta.properties").write_text(f"version=0\nbroker.id={number}\ncluster.id=c\n")
        found.append(str(root))
    log = next((tmp_path / "b2" / "__consumer_offsets-0").glob(f"{40:020d}.log"))
    flip(log, -1)
    return found[0], found[1]


OF_SEVERAL = {
    "check": "krepair_findings krepair_reclaimable_bytes krepair_uncleanable_bytes",
    "verify": "krepair_problems",
}


@pytest.mark.parametrize("verb", OF_SEVERAL)
def test_a_run_of_several_log_directories_writes_the_figures_of_each(
    verb: str, brokers: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "several.prom"
    ran = run(verb, *brokers, "--engine", "inline", "--quiet", "--metrics", str(file))
    assert ran.code == ExitCode.FOUND, ran.err
    samples = parsed(file.read_bytes())
    for name in OF_SEVERAL[verb].split():
        dirs = {dict(labels)["log_directory"] for found, labels in samples if found == name}
        assert dirs == set(brokers), name
    if verb == "verify":
        assert one(samples, "krepair_problems", log_directory=brokers[0]) == 0
        assert one(samples, "krepair_problems", log_directory=brokers[1]) > 0


def test_a_comparison_writes_its_verdicts(brokers: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "compare.prom"
    words = ("compare", f"1={brokers[0]}", f"2={brokers[1]}", "--engine", "inline", "--quiet")
    ran = run(*words, "--metrics", str(file))
    samples = parsed(file.read_bytes())
    assert one(samples, "krepair_last_run_exit_code", verb="compare") == ran.code
    verdicts = {
        dict(labels)["verdict"]: count
        for (name, labels), count in samples.items()
        if name == "krepair_replica_verdicts"
    }
    assert sum(verdicts.values()) == 1
    assert verdicts["damaged"] == 1


def test_every_metric_that_the_page_names_is_written_and_the_other_way_round(
    log_dir: Path, brokers: tuple[str, str], tmp_path: Path
) -> None:
    written: set[str] = set()
    plan = str(tmp_path / "plan")
    for words in (
        ("check", str(log_dir)),
        ("plan", str(log_dir), "--out", plan),
        ("apply", plan),
        ("verify", plan),
        ("compare", f"1={brokers[0]}", f"2={brokers[1]}"),
    ):
        file = tmp_path / f"{words[0]}.prom"
        run(*words, "--engine", "inline", "--metrics", str(file))
        written |= {name for name, _ in parsed(file.read_bytes())}
    named = set(re.findall(rf"\bkrepair_(?!check){NAME[:-1]}*", DOC.read_text()))
    assert named == written
    panel = re.findall(r"```json\n(.*?)```", DOC.read_text(), re.DOTALL)
    assert [json.loads(each)["type"] for each in panel] == ["timeseries"]
    assert not CONTROL.search(DOC.read_text())
