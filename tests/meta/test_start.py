"""Modules that a start loads. Seconds differ by machine; loaded modules do not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import krepair
from krepair.cli.outcome import VERBS
from krepair.plan.planfile import dumps
from tests.fixture_dirs import unpack
from tests.plan.plans import good_plan

ROOT = Path(krepair.__file__).parents[1]
COMPILER = {"numba", "llvmlite"}
LIBRARIES = COMPILER | {"pyspark", "py4j", "pyarrow", "pandas", "rich", "jinja2", "pydantic"}
HEAVY = COMPILER | {"numpy", "pyspark", "pyarrow", "pandas", "rich", "crc32c"}
CODECS = {"lz4", "snappy", "zstandard", "crc32c"}
MAPPED = re.compile(r"^@shown_as\(", re.MULTILINE)
TASK_MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "krepair").rglob("*.py")
    if MAPPED.search(path.read_text())
}
"""With a function that an engine maps."""
STAGING = {f"krepair.fixes.{fix}.make" for fix in ("markers", "compact", "tail", "index", "recovery")}
SCANNED = {"krepair.scan.scan"}
_LOOKING = ("rewrite.indexes.segment", "rewrite.indexes.transactions", "loading.simulate")
LOOKED_AT = SCANNED | {f"krepair.{name}" for name in _LOOKING}


def loaded_by(*arguments: str, ends: int) -> set[str]:
    """The modules that a process has loaded when the verb is done."""
    script = (
        "import sys\n"
        "from krepair.cli.main import main\n"
        f"sys.argv = ['krepair', *{arguments!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        f"    assert end.code == {ends}, end.code\n"
        "sys.stdout.write('loaded:' + ' '.join(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("loaded:")[2].split())


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A log directory in which there is nothing to read."""
    log_dir = tmp_path / "data"
    (log_dir / "t-0").mkdir(parents=True)
    (log_dir / "meta.properties").write_text("#\nversion=0\nbroker.id=1\n")
    for suffix in ("log", "index", "timeindex"):
        (log_dir / "t-0" / f"00000000000000000000.{suffix}").touch()
    (log_dir / ".kafka_cleanshutdown").touch()
    return log_dir


@pytest.mark.parametrize(
    "words",
    [("--version",), ("--help",), ("plan", "--help"), ("explain", "KR101"), ("show", "PLAN")],
    ids=" ".join,
)
def test_what_reads_no_log_directory_loads_nothing_heavy(tmp_path: Path, words: tuple[str, ...]) -> None:
    plan = tmp_path / "PLAN"
    plan.write_bytes(dumps(good_plan()))
    loaded = loaded_by(*[str(plan) if word == "PLAN" else word for word in words], ends=0)
    assert loaded & HEAVY == set()
    assert ("krepair.cli.verbs" in loaded) == (words != ("--version",))


def test_the_folder_of_the_verbs_holds_nothing_else() -> None:
    assert {path.stem for path in (ROOT / "krepair" / "ops").glob("*.py")} == {"__init__", *VERBS}


def test_a_list_of_what_plans_keep_loads_no_verb_no_fix_and_no_forecast(healthy: Path) -> None:
    loaded = loaded_by("purge", str(healthy), ends=0)
    packages = ("ops", "findings", "start", "fixes", "look", "rewrite", "replicas", "loading")
    assert [each for each in loaded if each.startswith(tuple(f"krepair.{name}." for name in packages))] == []
    assert loaded & (LIBRARIES | CODECS) == set()


def test_a_verb_loads_no_other_verb() -> None:
    loaded = loaded_by("explain", "KR101", ends=0)
    assert {verb for verb in VERBS if f"krepair.ops.{verb}" in loaded} == {"explain"}


def test_a_plan_of_an_empty_directory_loads_no_task_no_compiler_and_no_codec(tmp_path: Path) -> None:
    loaded = loaded_by("plan", str(tmp_path), ends=10)
    assert "krepair.fixes.table" in loaded
    assert loaded & (LIBRARIES | CODECS | TASK_MODULES | STAGING) == set()


def test_a_plan_where_nothing_is_to_be_read_loads_no_compiler_and_no_task_but_the_scan(healthy: Path) -> None:
    loaded = loaded_by("plan", str(healthy), "--json", ends=0)
    assert loaded & (LIBRARIES | CODECS | STAGING) == set()
    assert loaded & TASK_MODULES <= SCANNED


def test_a_plan_of_a_log_with_aborts_loads_the_scan_and_the_replay_alone(tmp_path: Path) -> None:
    log_dir = unpack("offsets-cleaned-2.2.1", tmp_path)
    loaded = loaded_by("plan", str(log_dir), "--engine", "inline", "--quiet", ends=2)
    assert loaded & (LIBRARIES - COMPILER | STAGING) == set()
    assert loaded & TASK_MODULES == SCANNED | {"krepair.rewrite.indexes.transactions"}


def test_a_check_of_a_partition_without_records_loads_only_tasks_that_look_and_play_the_start(
    healthy: Path,
) -> None:
    loaded = loaded_by("check", str(healthy), "--json", ends=0)
    assert loaded & (LIBRARIES - COMPILER | STAGING) == set()
    assert loaded & TASK_MODULES <= LOOKED_AT
