"""The real command as a service user without a home, on a file system that is read-only to it, as in a pod."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.builders import LogDir
from tests.compaction import histories
from tests.compaction.directories import dead_cleaner
from tests.compaction.old_formats import partition_of
from tests.fixture_dirs import unpack

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
# The Python of the tests may lie in root's own home: reading passes over modes, writing does not.
AS_NOBODY = (
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--bounding-set=-all,+dac_read_search",
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=+dac_read_search",
)
FIXTURES = {
    "offsets-bloat-2.2.0-clean": "t-a-0",
    "offsets-tv2-4.3.1": "t-a-0",
    "oldformat-2.2.1-before": "m1-snappy-0",
}
"""Name -> the partition that is dumped."""


@pytest.fixture(scope="module")
def room() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are for one user."""
    path = Path(tempfile.mkdtemp(prefix="krepair-users-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def warmed(room: Path) -> Path:
    """What an installation leaves behind: compiled kernels that belong to root, for everybody."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become another user")
    words = [sys.executable, "-m", "krepair", "warm", "--into", str(room / "compiled"), "--json"]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    report = json.loads(ended.stdout)["report"]
    assert len(list(Path(report["folder"]).glob("*-*"))) >= report["kernels"]
    return room / "compiled"


def as_nobody(*words: str, cache: Path | str) -> subprocess.CompletedProcess[str]:
    """Run krepair as a user who owns nothing, has no home and may write only where the test says."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "TMPDIR": "/nonexistent",
        "KREPAIR_CACHE_DIR": str(cache),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT),
        "KREPAIR_DEBUG": "1",
    }
    return subprocess.run(
        [*AS_NOBODY, sys.executable, "-m", "krepair", *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd="/",
    )


def log_dir_of_nobody(room: Path, name: str) -> Path:
    path = unpack(name, room / name)
    for found in [path, *path.rglob("*")]:
        os.chown(found, NOBODY, NOBODY)
    return path


@pytest.mark.slow
def test_every_verb_works_and_compiles_nothing(room: Path, warmed: Path) -> None:
    before = sorted(warmed.rglob("*"))
    mine = room / "mine"
    mine.mkdir()
    os.chown(mine, NOBODY, NOBODY)
    plan = str(mine / "plan")
    for name, partition in FIXTURES.items():
        log_dir = str(log_dir_of_nobody(room, name))
        folder = os.path.join(log_dir, partition)
        runs = [
            (("check", log_dir, "--deep", "-q"), {0, 2}),
            (("dump", folder, "--json", "--decode", "none"), {0, 2}),
            (("groups", log_dir, "-q"), {0, 2, 10}),
        ]
        if name == "offsets-bloat-2.2.0-clean":
            runs += [
                (("transactions", log_dir, "-q"), {0, 2, 10}),
                (
                    (
                        "plan",
                        log_dir,
                        "--fix",
                        "markers,index,snapshots",
                        "--only-replica",
                        "*",
                        "--out",
                        plan,
                        "-q",
                    ),
                    {0, 2},
                ),
                (("apply", plan, "-q"), {0}),
                (("verify", plan, "-q"), {0, 2}),
                (("undo", plan, "-q"), {0}),
                (("purge", plan, "-q"), {0}),
            ]
        for words, good in runs:
            ended = as_nobody(*words, cache=warmed)
            assert ended.returncode in good, (words, ended.returncode, ended.stderr)
            assert "Traceback" not in ended.stderr
    assert sorted(warmed.rglob("*")) == before


# Run in a process of its own: what was called with which types is known of one process.
_CALLED = (
    "import sys\nfrom krepair.cli.main import app\n"
    "from krepair.kernels import cache, jit\n"
    "cache.INSTALLED_FOLDER = sys.argv[2]\n"
    "from krepair.rewrite.compaction import partitions, proof\n"
    "for words in eval(sys.argv[1]):\n"
    "    if words[0] == 'spill':\n"
    "        for module in (partitions, proof):\n"
    "            module._INLINE_BYTES = module._ROWS_INLINE_AT_LEAST = 0\n"
    "        continue\n"
    "    try: app(words)\n"
    "    except SystemExit as end: assert end.code in {0, 2, 10}, (words, end.code)\n"
    "assert sum(bool(kernel.signatures()) for kernel in jit.KERNELS.values()) > 10\n"
)


def compiled_by(runs: list[list[str]], root: Path) -> list[str]:
    """Names of the compiled kernels that these runs add to what ``krepair warm`` made."""
    warmed, added = root / "warmed", root / "added"
    added.mkdir(mode=0o755)
    subprocess.run(
        [sys.executable, "-m", "krepair", "warm", "--into", str(warmed), "-q"], check=True, cwd=ROOT
    )
    ended = subprocess.run(
        [sys.executable, "-c", _CALLED, repr(runs), str(warmed)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | dict.fromkeys(("KREPAIR_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"), str(added)),
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return sorted(path.name for path in added.glob("kernels-*/*"))


@pytest.mark.slow
def test_warm_compiles_all_that_the_verbs_call(tmp_path: Path) -> None:
    """A kernel that is called with types that are not in the list would be compiled by every run in a pod."""
    runs: list[list[str]] = []
    for name, partition in FIXTURES.items():
        log_dir = unpack(name, tmp_path)
        folder = str(log_dir / partition)
        plan = f"{tmp_path / name}.plan"
        runs += [
            ["check", str(log_dir), "--deep", "-q"],
            ["dump", folder, "--json", "--decode", "none"],
            ["groups", str(log_dir), "-q"],
            [
                "plan",
                str(log_dir),
                "--fix",
                "markers,index,snapshots",
                "--only-replica",
                "*",
                "--out",
                plan,
                "-q",
            ],
            ["apply", plan, "-q"],
            ["verify", str(log_dir), "-q"],
        ]
    runs += compact_runs(tmp_path)
    assert compiled_by(runs, tmp_path) == []


def compact_runs(root: Path) -> list[list[str]]:
    """Key compaction over all formats, codecs, transactions and ``__consumer_offsets``, in memory and spilling."""
    runs: list[list[str]] = []
    for number, spill in enumerate((False, True)):
        log_dir = log_dir_to_compact(root / f"compact-{number}")
        config, plan, scratch = (
            str(root / f"{name}-{number}") for name in ("topics", "compact-plan", "scratch")
        )
        topics = [path.name.rpartition("-")[0] for path in log_dir.iterdir() if path.is_dir()]
        settings = {"cleanup.policy": "compact", "segment.bytes": "100000"}
        Path(config).write_text(json.dumps(dict.fromkeys(topics, settings)))
        Path(scratch).mkdir()
        words = [
            "--delete-horizon",
            "4000000000000",
            "--assume-high-watermark",
            "log-end",
            "--engine",
            "inline",
            "-q",
        ]
        runs += [["spill"]] if spill else []
        runs += [
            ["plan", str(log_dir), "--fix", "compact", "--only-replica", "*",
             "--topic-config", config, "--out", plan, "--scratch", scratch,
             *words],
            ["apply", plan, "--scratch", scratch, "--engine", "inline", "-q"],
            ["verify", plan, "--originals", "--scratch", scratch, "--engine", "inline", "-q"],
            ["undo", plan, "-q"],
        ]  # fmt: skip
    return runs


def log_dir_to_compact(root: Path) -> Path:
    """Partitions of all kinds, each with keys that go."""
    log_dir = dead_cleaner(root / "logs")
    for seed in range(8):
        made = histories.of_seed(seed, codecs=True)
        folder = made.fill(LogDir(root / f"v2-{seed}").partition("t", index_interval_bytes=200)).write()
        shutil.move(folder, log_dir / f"v2x{seed}-0")
        old, _ = partition_of(seed, root / f"old-{seed}")
        shutil.move(old, log_dir / f"old{seed}-0")
    return log_dir


def test_without_any_cache_the_first_run_compiles_and_works(room: Path, warmed: Path) -> None:
    log_dir = log_dir_of_nobody(room, "timeindex-ok-2.2.1")
    segment = min(log_dir.glob("*/*.log"))
    ended = as_nobody("dump", str(segment), "--batches", "--limit", "1", cache="/nonexistent")
    assert ended.returncode == 0, ended.stderr
    # Whether it had to: what is compiled may lie beside the source as well.
    assert all(line.startswith("compiling") for line in ended.stderr.splitlines()), ended.stderr


def test_warm_names_the_folder_that_cannot_be_written(room: Path, warmed: Path) -> None:
    ended = as_nobody("warm", "--into", "/proc/nowhere", cache=warmed)
    assert ended.returncode == ExitCode.REFUSED
    assert "/proc/nowhere: compiled kernels cannot be kept here" in ended.stderr
    assert "KREPAIR_CACHE_DIR" in ended.stderr
