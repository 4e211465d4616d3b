"""``make bench``: krepair and its real peers on the same data in one run; ratios, with machine, versions and sizes.

Nothing is asserted: the numbers are for a reader. Results go to ``.bench/results.json`` and to the terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

from tests.lab import jars, jvm
from tests.lab.judge import Judge
from tools.bench import cluster, compact, many, recovery, replicas
from tools.bench.data import NOW_MS, Made, make
from tools.bench.table import Table

FAR_MS = NOW_MS + 10**10
KREPAIR = Path(sys.executable).parent / "krepair"
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": 100_000_000, "delete.retention.ms": 86_400_000}
# a broker's JVM compiles in all tiers; the judge of the tests stops at the first for a quick start
BROKER_JVM = ("-XX:+UseG1GC", "-Xshare:auto", "-Djava.net.preferIPv4Stack=true")
DUMP_TOOLS = {"2.2.1": "kafka.tools.DumpLogSegments", "4.3.1": "org.apache.kafka.tools.DumpLogSegments"}
DUMP_BYTES = 100_000_000
MAX_PASSES = 6
# a user's Python keeps its bytecode; some build machines tell it not to
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
INDEX_BYTES = 300_000_000
COMPACT_BYTES = 200_000_000
REPLICA_BYTES = 200_000_000
STATE_BYTES = 100_000_000
SEVERAL = 10
TIMES = 15  # one partition is planned so often in one process
AGAIN = 30  # one log is read so often in one process, so that the work is many times the start
WORTH = 6  # a whole process is to take so many times as long as its start
OFTEN = 15  # what takes a tenth of a second, or varies by as much, is measured at least so often


@dataclass
class Series:
    """One thing measured several times.

    Attributes:
        name: what it is.
        bytes: of source logs that one run reads.
        seconds: of each run.
    """

    name: str
    bytes: int
    seconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Median MB/s."""
        return self.bytes / statistics.median(self.seconds) / 1e6

    @property
    def best(self) -> float:
        """Highest MB/s: what other work on the machine can only lower."""
        return self.bytes / min(self.seconds) / 1e6

    def line(self) -> str:
        """Minimum, median and maximum of the rate."""
        rates = sorted(self.bytes / second / 1e6 for second in self.seconds)
        return f"| {self.name} | {rates[0]:,.0f} | {self.rate:,.0f} | {rates[-1]:,.0f} |"


class Took(NamedTuple):
    """Seconds of a process."""

    wall: float
    cpu: float


def seconds_of(*commands: list[str], good: tuple[int, ...] = (0,)) -> Took:
    """Wall and CPU time of processes, one after the other."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
        if done.returncode not in good:
            raise RuntimeError(
                f"{' '.join(command)} ended with {done.returncode}: {done.stderr}{done.stdout}"
            )
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime)


def quiet_seconds(command: list[str], good: tuple[int, ...] = (0,)) -> Took:
    """Wall and CPU time of a process whose output nobody reads."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=ENVIRONMENT
    )
    if done.returncode not in good:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime)


class Bench:
    """All measurements.

    Args:
        folder: where data lie; emptied first.
        runs: how often each is measured.
    """

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder = folder
        self.runs = runs
        self.series: dict[str, Series] = {}
        self.notes: dict[str, float | str] = {}
        self.table = Table()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.ten = make(folder / "ten", "markers", 0)
        # of the same kind, so that the same kernels are loaded
        self.tens = {"markers": self.ten, "half": make(folder / "ten-half", "half", 0)}
        self.warm = make(folder / "warm", "half", 60_000_000, segment_bytes=20_000_000)

    def note(self, name: str, size: int, seconds: float) -> None:
        """One run of a series."""
        self.series.setdefault(name, Series(name, size)).seconds.append(max(seconds, 1e-6))
        print(
            f"  {name}: {seconds:.3f} s, {size / max(seconds, 1e-6) / 1e6:,.0f} MB/s",
            file=sys.stderr,
            flush=True,
        )

    def copy_of(self, made: Made) -> Path:
        """A fresh copy of a log directory, in the page cache and on the disk."""
        target = self.folder / "copy"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made.root, target)
        os.sync()
        return target

    # -- krepair, whole processes

    def starts(self) -> None:
        """How long a process takes that has next to nothing to do."""
        empty = self.folder / "empty"
        empty.mkdir()
        (empty / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        runs = {
            "krepair --version": ["--version"],
            "krepair plan, empty directory: no kernel": ["plan", str(empty), "--quiet"],
            "krepair plan, ten batches: kernels from the cache": self._plan(self.ten.root)[1:],
        }
        for name, words in runs.items():
            command = [str(KREPAIR), *words]
            seconds_of(command, good=(0, 2))
            took = [seconds_of(command, good=(0, 2)) for _ in range(2 * OFTEN)]
            self.notes[f"process start, {name} (ms)"] = 1000 * median(each.wall for each in took)
            self.notes[f"the same, CPU time (ms): {name}"] = 1000 * median(each.cpu for each in took)

    def transactions(self, made: Made) -> None:
        """``krepair transactions`` over the records of a coordinator, less its start."""
        words = [str(KREPAIR), "transactions", "--engine", "inline", "--quiet"]
        self._less_its_start(
            "krepair transactions",
            made.log_bytes,
            [*words, str(self.ten.root)],
            [*words, str(made.root)],
            good=(0, 2),
        )

    def plan_seconds(self, made: Made) -> Took:
        """``krepair plan``, every CRC checked."""
        return seconds_of([*self._plan(made.root), "--out", str(self._plan_file())], good=(0, 2))

    def all_seconds(self, made: Made) -> Took:
        """``krepair plan``, ``apply`` and ``verify``, one after the other."""
        copy, plan = self.copy_of(made), self._plan_file()
        planning = [*self._plan(copy), "--out", str(plan)]
        rest = [
            [str(KREPAIR), verb, str(plan), "--engine", "inline", "--quiet"] for verb in ("apply", "verify")
        ]
        return seconds_of(planning, *rest, good=(0, 2))

    def _plan(self, log_dir: Path) -> list[str]:
        words = [
            "plan",
            str(log_dir),
            "--now",
            str(NOW_MS),
            "--delete-horizon",
            str(FAR_MS),
            "--only-replica",
            "*",
        ]
        return [str(KREPAIR), *words, "--engine", "inline", "--quiet"]

    def _plan_file(self) -> Path:
        path = self.folder / "plan.json"
        path.unlink(missing_ok=True)
        return path

    def whole_processes(self, name: str, made: Made) -> None:
        """Throughput of the commands, each less the same command on ten batches."""
        several = linked(made, self.folder / f"{name}-linked", TIMES)
        for _ in range(self.runs):
            # in turn, so that what slows the machine for a while slows both
            base, full = self.plan_seconds(self.tens[name]), self.plan_seconds(several)
            self.note(f"{name}: krepair plan", several.log_bytes, full.wall - base.wall)
            self.note(f"{name}: krepair plan (CPU time)", several.log_bytes, full.cpu - base.cpu)
        for _ in range(max(self.runs, OFTEN)):
            took, _ = self.go(self.worker("verbs", self.copy_of(made)))
            self.note(f"{name}: krepair plan + apply + verify", made.log_bytes, took)

    # -- parts, in one process

    def worker(self, *words: object) -> subprocess.Popen[str]:
        """A loaded worker that waits for its start."""
        argv = [sys.executable, "-m", "tools.bench.worker", str(self.ten.folder), *map(str, words)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{' '.join(argv)} did not start")
        return process

    @staticmethod
    def go(*workers: subprocess.Popen[str]) -> tuple[float, list[dict[str, Any]]]:
        """Start them together; wall seconds until the last is done, and what they say."""
        begun = time.perf_counter()
        for each in workers:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        answers = []
        for each in workers:
            assert each.stdout is not None
            answers.append(json.loads(each.stdout.readline()))
        took = time.perf_counter() - begun
        for each in workers:
            each.communicate()
        return took, answers

    def copying(self, made: Made) -> None:
        """The copying part alone, against a plain copy with fsync of as many bytes."""
        for _ in range(self.runs):
            copy = self.copy_of(made)
            _, [answer] = self.go(self.worker("tasks", copy))
            stage = answer["result"]["stage"]
            kept = sum(path.stat().st_size for path in copy.glob("*/*.log"))
            source = made.folder / sorted(path.name for path in made.folder.glob("*.log"))[0]
            data = source.read_bytes()
            target = self.folder / "plain"
            begun = time.perf_counter()
            with target.open("wb", buffering=0) as file:
                left = kept
                while left > 0:
                    left -= file.write(data[: min(left, 1 << 20)])
                os.fsync(file.fileno())
            self.note(
                "half: plain copy with fsync of the kept bytes", made.log_bytes, time.perf_counter() - begun
            )
            self.note("half: copying part of apply", made.log_bytes, stage)

    def two_processes(self, made: Made) -> None:
        """Scan the segments of one partition in one process and in two; crc32c over the same files likewise."""
        count = len(list(made.folder.glob("*.log"))) - 1
        count -= count % 2
        for _ in range(max(self.runs, OFTEN)):
            for verb in ("crc32c", "scan"):
                one, _ = self.go(self.worker(verb, made.folder, *range(count)))
                halves = (self.worker(verb, made.folder, *range(start, count, 2)) for start in (0, 1))
                two, _ = self.go(*halves)
                self.note(f"one process: {verb}", made.log_bytes, one)
                self.note(f"two processes: {verb}", made.log_bytes, two)

    def memory(self) -> None:
        """Peak memory of a worker over one large segment of markers: scanned, staged and verified."""
        made = make(self.folder / "large", "markers", 1 << 30, segment_bytes=1 << 30)
        _, [scan] = self.go(self.worker("scan", made.folder, 0))
        _, [both] = self.go(self.worker("tasks", self.copy_of(made)))
        self.notes["peak memory above the loaded worker, scan of a 1 GiB segment of markers (MiB)"] = (
            scan["more_kb"] / 1024
        )
        self.notes["the same, plan and apply (MiB)"] = both["more_kb"] / 1024
        shutil.rmtree(made.root)

    # -- peers

    def cleaner(self, version: str, name: str, made: Made) -> None:
        """Kafka's own cleaner: a warmed first pass, and all passes to the fixpoint."""
        jars.fetch(version)
        with mock.patch.object(jvm, "QUICK", BROKER_JVM), Judge(version, heap="1g", timeout_s=900) as judge:
            for _ in range(2):
                self._passes(judge, self.warm, most=2)
            for _ in range(self.runs):
                seconds = self._passes(judge, made, most=MAX_PASSES)
                self.note(f"{name}: cleaner of {version}, first pass", made.log_bytes, seconds[0])
                self.note(
                    f"{name}: cleaner of {version}, {len(seconds)} passes to the fixpoint",
                    made.log_bytes,
                    sum(seconds),
                )

    def _passes(self, judge: Judge, made: Made, *, most: int) -> list[float]:
        folder = self.copy_of(made) / made.folder.name
        new = judge.version.startswith(("3.9", "4"))
        seconds: list[float] = []
        before = -1
        while len(seconds) < most:
            horizon = FAR_MS + len(seconds) * 10**9 if new else FAR_MS
            seconds.append(judge.clean(folder, horizon=horizon, settings=SETTINGS).seconds)
            after = sum(path.stat().st_size for path in folder.glob("*.log"))
            if after == before:
                break
            before = after
        return seconds

    def regeneration(self, name: str, made: Made) -> None:
        """Every index of a partition made anew by krepair and by the broker's recovery, one thread each."""
        for _ in range(self.runs):
            seconds, _ = self.go(self.worker("regenerate", made.folder))
            self.note(f"{name}: indexes regenerated by krepair", made.log_bytes, seconds)
        for version in ("2.2.1", "3.9.2"):
            self.recovery(version, name, made)
            self.ratio(
                f"{name}: indexes regenerated by krepair / recovery of {version}",
                f"{name}: indexes regenerated",
                f"{name}: recovery of {version}",
            )

    def recovery(self, version: str, name: str, made: Made) -> None:
        """The broker's recovery, which rebuilds indexes."""
        with mock.patch.object(jvm, "QUICK", BROKER_JVM), Judge(version, heap="1g", timeout_s=900) as judge:
            judge.recover(self.copy_of(self.ten) / self.ten.folder.name, SETTINGS)
            for _ in range(self.runs):
                folder = self.copy_of(made) / made.folder.name
                begun = time.perf_counter()
                judge.recover(folder, SETTINGS)
                self.note(f"{name}: recovery of {version}", made.log_bytes, time.perf_counter() - begun)

    def pre_recovery(self, kind: str, made: Made) -> None:
        """Pre-recovery and the start that it takes the place of, with a cold cache."""
        recovery.measure(self.note, self.copy_of, kind, made, self.runs, SETTINGS)
        ours = f"{kind}: krepair plan + apply --fix recovery"
        for version in recovery.VERSIONS:
            for text in (", without the second reading", ""):
                for how in ("", " (CPU time)"):
                    theirs = f"{kind}: start of {version} after a kill{how}"
                    self.ratio(f"{ours}{text}{how} / start of {version}", f"{ours}{text}{how}", theirs)

    def pre_recovery_cores(self, kind: str, made: Made) -> None:
        """Pre-recovery of several partitions, with one core and with two."""
        together = recovery.several(made, self.folder / f"several-{kind}", SEVERAL)
        recovery.measure_cores(self.note, self.copy_of, kind, together, self.runs, SETTINGS)
        shutil.rmtree(together.root)

    def key_compaction(self) -> None:
        """Key compaction by the verbs, against one pass of the cleaners, by CPU time."""
        for kind in compact.KINDS:
            room = self.folder / "compact"
            room.mkdir()
            cost, total = compact.measure(
                room, kind, COMPACT_BYTES, max(self.runs, 3), compact.VERSIONS, BROKER_JVM
            )
            shutil.rmtree(room)
            for name, value in compact.lines(kind, cost, total, compact.VERSIONS).items():
                self.notes[name] = value
                print(f"  {name}: {value:,.2f}", file=sys.stderr, flush=True)

    def replicas(self) -> None:
        """``krepair compare`` of three sides, against verbs that read the same bytes, by CPU time."""
        room = self.folder / "replicas"
        room.mkdir()
        for name, value in replicas.measure(room, REPLICA_BYTES, max(self.runs, 3)).items():
            self.notes[name] = value
            print(f"  {name}: {value:,.2f}", file=sys.stderr, flush=True)
        shutil.rmtree(room)

    def many(self, partitions: int) -> None:
        """Many small partitions: whole processes, and calls a partition."""
        room = self.folder / "many"
        room.mkdir()
        many.measure(self.table, room, partitions, self.runs)
        shutil.rmtree(room)

    # -- dump and groups, whole processes against the broker's dump tool

    def looking(self, kind: str, made: Made, ours: list[str], theirs: list[str]) -> None:
        """``krepair dump --json`` and the dump tools of two brokers on the same log, each less its start."""
        log = min(made.folder.glob("*.log"))
        size = log.stat().st_size
        tiny = max(made.folder.glob("*.log"))
        words = [str(KREPAIR), "dump", "--json", "--decode", "none", *ours]
        name = f"{kind}: krepair dump {' '.join(ours)} --json"
        # the same log several times, so that the work is many times the start
        self._less_its_start(name, size * AGAIN, [*words, str(tiny)], [*words, *[str(log)] * AGAIN])
        for version, main in DUMP_TOOLS.items():
            jars.fetch(version)
            with mock.patch.object(jvm, "QUICK", BROKER_JVM):
                command = [
                    jvm.java(version, main, "--files", path, *theirs, heap="1g") for path in (tiny, log)
                ]
            peer = f"{kind}: dump tool of {version}"
            self._less_its_start(peer, size, *command)
            self.ratio(f"{name} / {peer}", name, peer)
            self.ratio(f"{name} / {peer} (CPU time)", f"{name} (CPU time)", f"{peer} (CPU time)")

    def cluster(self, total_bytes: int) -> None:
        """Reading on one, two and three Spark workers of one core."""
        rows = list(cluster.measured(self.folder, total_bytes))
        print("| logs | workers | seconds | MB/s | most / mean | start |\n|---|---|---:|---:|---:|---:|")
        for row in rows:
            print(row.line(), flush=True)
            where = f"{row.workers} workers" if row.workers else "inline"
            self.note(f"cluster: {row.kind}, {where}", row.bytes, row.seconds)

    def groups(self, made: Made) -> None:
        """``krepair groups`` over a GiB of offset commits, less its start."""
        words = [str(KREPAIR), "groups", "--engine", "inline", "--quiet"]
        self._less_its_start(
            "krepair groups", made.log_bytes, [*words, str(self.ten.root)], [*words, str(made.root)]
        )

    def _less_its_start(
        self, name: str, size: int, start: list[str], whole: list[str], good: tuple[int, ...] = (0,)
    ) -> None:
        """Wall and CPU time of a process, less those of one that has next to nothing to do."""
        quiet_seconds(start, good)  # compiles what is not in the cache yet
        for _ in range(self.runs):
            # in turn, so that what slows the machine for a while slows both
            less, took = quiet_seconds(start, good), quiet_seconds(whole, good)
            if took.wall < WORTH * less.wall:
                self.notes[f"the work is less than {WORTH} times the start: {name}"] = took.wall / less.wall
            self.note(name, size, took.wall - less.wall)
            self.note(f"{name} (CPU time)", size, took.cpu - less.cpu)

    # -- the end

    def ratio(self, text: str, upper: str, lower: str) -> None:
        """Note the ratio of two medians, if both were measured."""
        found = [
            next((s for n, s in self.series.items() if n.startswith(each)), None) for each in (upper, lower)
        ]
        if found[0] is not None and found[1] is not None:
            self.notes[text] = found[0].rate / found[1].rate

    def ratios(self) -> None:
        """What the numbers come to."""
        for name in ("markers", "half"):
            for version in ("2.2.1", "3.9.2"):
                for passes in ("first pass", ""):
                    peer = (
                        f"{name}: cleaner of {version}, {passes}"
                        if passes
                        else f"{name}: cleaner of {version}, "
                    )
                    names = [n for n in self.series if n.startswith(peer) and (passes or "fixpoint" in n)]
                    if names:
                        what = names[0].partition(": ")[2]
                        self.ratio(
                            f"{name}: krepair plan + apply + verify / {what}",
                            f"{name}: krepair plan +",
                            names[0],
                        )
        self.ratio("half: copying part / plain copy with fsync", "half: copying part", "half: plain copy")
        speedups = {}
        for verb in ("scan", "crc32c"):
            pair = (self.series.get(f"two processes: {verb}"), self.series.get(f"one process: {verb}"))
            if pair[0] and pair[1]:
                speedups[verb] = pair[0].best / pair[1].best
                self.notes[f"speed-up of two processes, best runs: {verb}"] = speedups[verb]
        if len(speedups) == len(("scan", "crc32c")):
            self.notes["speed-up of two scans / of two crc32c processes"] = (
                speedups["scan"] / speedups["crc32c"]
            )

    def report(self) -> str:
        """Markdown, as in ``docs/benchmarks.md``."""
        lines = [machine(), "", "| MB/s of source logs | min | median | max |", "|---|---:|---:|---:|"]
        lines += [each.line() for each in self.series.values()]
        lines += ["", "| | |", "|---|---:|"]
        lines += [f"| {name} | {value:.2f} |" for name, value in self.notes.items()]
        lines += ["", self.table.report()]
        return "\n".join(lines)


def machine() -> str:
    """Machine and versions, in one line."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    java = said.partition("\n")[0]
    system = f"{os.cpu_count()} x {cpu}, {platform.system()} {platform.release()}"
    return f"{system}, Python {platform.python_version()}, {java}; load {os.getloadavg()[0]:.1f} at the end"


def linked(made: Made, root: Path, times: int) -> Made:
    """A log directory with the same partition several times, by links: it may only be read."""
    end = made.batches
    for number in range(times):
        folder = root / f"__consumer_offsets-{number}"
        folder.mkdir(parents=True)
        for path in made.folder.iterdir():
            os.link(path, folder / path.name)
    lines = "".join(f"__consumer_offsets {number} {end}\n" for number in range(times))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).write_text(f"0\n{times}\n{lines}")
    (root / "meta.properties").write_bytes((made.root / "meta.properties").read_bytes())
    (root / ".kafka_cleanshutdown").touch()
    return Made(root, root / "__consumer_offsets-0", made.log_bytes * times, made.batches * times)


def index_log(folder: Path, kind: str) -> Made:
    """300 MB of one kind."""
    return make(folder / f"index-{kind}", kind, INDEX_BYTES)


def unclean_log(folder: Path, kind: str) -> Made:
    """300 MB of one kind, of a broker that was killed."""
    made = folder / f"recovery-{kind}"
    shutil.rmtree(made, ignore_errors=True)
    return make(made, kind, INDEX_BYTES)


def one_log(folder: Path, kind: str) -> Made:
    """100 MB of one kind in one segment."""
    return make(folder / f"dump-{kind}", kind, DUMP_BYTES, segment_bytes=2 * DUMP_BYTES)


def main() -> None:
    """Parse the command line, measure, print, keep."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path(".bench"), help="where data go (about 5 GB)")
    parser.add_argument("--markers-mb", type=int, default=1000)
    parser.add_argument("--half-mb", type=int, default=400, help="a cleaner's offset map must hold its keys")
    parser.add_argument("--cluster-mb", type=int, default=4000, help="part cluster: bytes of logs in all")
    parser.add_argument("--partitions", type=int, default=2000, help="part many")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--only",
        default="start,markers,half,two,memory,index,recovery,compact,compare,many,dump,groups,transactions,peers",
        help="parts to run, divided by commas",
    )
    chosen = parser.parse_args()
    chosen.dir = chosen.dir.resolve()  # a log directory is named by an absolute path
    parts = set(chosen.only.split(","))
    bench = Bench(chosen.dir, chosen.runs)
    logs = {"markers": make(chosen.dir / "markers", "markers", chosen.markers_mb * 10**6)}
    if "half" in parts:
        logs["half"] = make(chosen.dir / "half", "half", chosen.half_mb * 10**6)
    bench.all_seconds(bench.ten)
    steps: list[tuple[str, Callable[[], None]]] = [("two", lambda: bench.two_processes(logs["markers"]))]
    for name, made in logs.items():
        steps.append((name, lambda name=name, made=made: bench.whole_processes(name, made)))  # type: ignore[misc]
        if "peers" in parts and name in parts:
            for version in ("2.2.1", "3.9.2"):
                steps.append((name, lambda v=version, n=name, m=made: bench.cleaner(v, n, m)))  # type: ignore[misc]
    if "half" in logs:
        steps.append(("half", lambda: bench.copying(logs["half"])))
    steps.append(("memory", bench.memory))
    for kind in ("markers", "records", "lz4"):
        steps.append(("index", lambda kind=kind: bench.regeneration(kind, index_log(chosen.dir, kind))))  # type: ignore[misc]
    for kind in ("markers", "records"):
        steps.append(("recovery", lambda kind=kind: bench.pre_recovery(kind, unclean_log(chosen.dir, kind))))  # type: ignore[misc]
        steps.append(
            ("cores", lambda kind=kind: bench.pre_recovery_cores(kind, unclean_log(chosen.dir, kind)))
        )  # type: ignore[misc]
    steps.append(("compact", bench.key_compaction))
    steps.append(("compare", bench.replicas))
    steps.append(("many", lambda: bench.many(chosen.partitions)))
    steps.append(("cluster", lambda: bench.cluster(chosen.cluster_mb * 10**6)))
    contents = ["--deep-iteration", "--print-data-log"]
    for kind, ours, theirs in (("markers", ["--batches"], []), ("texts", ["--records"], contents)):
        steps.append(
            ("dump", lambda k=kind, o=ours, t=theirs: bench.looking(k, one_log(chosen.dir, k), o, t))
        )  # type: ignore[misc]
    steps.append(
        ("groups", lambda: bench.groups(make(chosen.dir / "commits", "commits", 1 << 30, producers=2000)))
    )
    steps.append(
        (
            "transactions",
            lambda: bench.transactions(make(chosen.dir / "states", "states", STATE_BYTES, producers=2000)),
        )
    )
    steps.insert(0, ("start", bench.starts))
    for part, step in steps:
        if part in parts:
            step()
    bench.ratios()
    report = bench.report()
    results = {
        "machine": machine(),
        "series": {s.name: {"bytes": s.bytes, "seconds": s.seconds} for s in bench.series.values()},
        "notes": bench.notes,
    }
    (chosen.dir / "results.json").write_text(json.dumps(results, indent=1))
    print(report)


if __name__ == "__main__":
    main()
