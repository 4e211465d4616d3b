"""Runs krepair on the folders of Kafka's own unit tests, and compares its results with those of Kafka's classes.

An agent (``tools/java/Folders.java``) keeps a copy of each folder that a test lets a log load, of each that a log has
closed, and of each that a cleaner is about to clean. The classes of that version then load and clean them.
No test jars of 4.4.0 are published: its classes judge what the tests of 4.3.1 make. Needs a JDK and Maven.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from krepair.checks.catalogue import Severity, severity_of
from krepair.errors import KrepairError
from krepair.findings.reports import LogDirReport
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import PartitionPlan
from tests.lab.broker import topic_config
from tests.lab.jars import LATEST, cache_root, fetched, locked, release
from tests.lab.judge import Judge, JudgeError, Loaded, Record
from tests.lab.starts import Done, done_by, said_by
from tools.torture.state import State

AGENT: Final = Path(__file__).parent.parent / "java" / "Folders.java"
_STORAGE: Final = "org.apache.kafka.storage.internals.log."
_CLEANER: Final = ("kafka.log.LogCleanerTest", "kafka.log.LogCleanerParameterizedIntegrationTest")
TESTS: Final = {
    "2.2.1": ("kafka.log.LogTest", "kafka.log.LogSegmentTest", "kafka.log.LogManagerTest", *_CLEANER),
    "3.9.2": ("kafka.log.LogLoaderTest", "kafka.log.UnifiedLogTest", "kafka.log.LogManagerTest", *_CLEANER),
    "4.3.1": (
        "kafka.log.LogLoaderTest",
        "kafka.log.UnifiedLogTest",
        "kafka.log.LogManagerTest",
        f"{_STORAGE}UnifiedLogTest",
        *_CLEANER,
    ),
}
"""Classes of tests, by version."""
JUDGES: Final = {"2.2.1": "2.2.1", "3.9.2": "3.9.2", "4.3.1": "4.3.1", LATEST: "4.3.1"}
"""Version of the classes -> that of the tests."""
_OPENED: Final = (
    "java.lang", "java.util", "java.util.concurrent", "java.util.regex", "java.util.stream", "java.nio",
    "java.nio.file", "java.text", "java.time", "sun.nio.ch",
)  # fmt: skip
_TESTED: Final = (
    "kafka_2.13", "kafka-clients", "kafka-storage", "kafka-server-common", "kafka-raft", "kafka-metadata",
)  # fmt: skip
_BESIDE: Final = {
    3: ("kafka-group-coordinator", "kafka-storage-api"),
    4: (
        "kafka-group-coordinator", "kafka-storage-api", "kafka-server", "kafka-transaction-coordinator",
    ),
}  # fmt: skip
_RUNNER: Final = (
    "org.junit.platform:junit-platform-console-standalone:1.10.2",
    "net.bytebuddy:byte-buddy:1.15.4",
    "org.slf4j:slf4j-simple:1.7.36",
)
_TOOLS: Final = (
    *_RUNNER,
    "org.mockito:mockito-core:5.14.2",
    "org.mockito:mockito-junit-jupiter:5.14.2",
    "org.hamcrest:hamcrest:2.2",
    "net.jqwik:jqwik-api:1.8.3",
    "com.yammer.metrics:metrics-core:2.2.0",
)
_TOOLS_2: Final = (
    *_RUNNER,
    "org.mockito:mockito-core:2.28.2",
    "junit:junit:4.13.2",
    "org.easymock:easymock:4.0.2",
    "org.scalatest:scalatest_2.12:3.0.7",
    "org.apache.commons:commons-lang3:3.8.1",
)
_SETTINGS: Final = frozenset(
    {
        "delete.retention.ms",
        "index.interval.bytes",
        "max.message.bytes",
        "segment.bytes",
        "segment.index.bytes",
    }
)
_LEFT: Final = (".swap", ".cleaned", ".deleted")
_INDEXES: Final = (".index", ".timeindex", ".txnindex")
MOST_BYTES: Final = 4 << 20
"""Logs of a folder: one that a test makes larger shows nothing else."""
DAY_MS: Final = 86_400_000
LATER_MS: Final = 2 * 10**9
"""So much later the cleaners look at the clock: all markers and tombstones that were written may go."""
_DAMAGED: Final = "what is found is there: the test damages its folder before it closes the log"
DOCUMENTED: Final[dict[str, str]] = {
    "KR204 testAppendToTransactionIndexFailure": _DAMAGED,
    "KR204 testFullTransactionIndexRecovery": _DAMAGED,
    "KR302 testCorruptedLogRecoveryDoesNotDeleteProducerStateSnapshotsPostRecovery": _DAMAGED,
    "KR302 testLogEndLessThanStartAfterReopen": _DAMAGED,
    "KR402 testLogRecoversForLeaderEpoch": _DAMAGED,
    "KR312 tearDown": "what is found is there: another log of the test has cut the same folder",
    "verify testSegmentWithOffsetOverflow": "what is found is there: the test cleans its active segment, too",
    "recovery testAppendToTransactionIndexFailure": "2.2.1 writes an aborted transaction for a marker without data",
}
"""Comparison, or rule of what is found in a healthy folder, and test -> why its folders are no fault of krepair's."""


@dataclass(frozen=True)
class Folder:
    """A folder as a test left it.

    Attributes:
        path: path of the copy.
        test: class and method of the test.
        kind: ``load``: a loader was about to load it; ``close``: a log had just closed it; ``clean``: a log was
            open, and a cleaner about to clean it.
        clean: true if the loader was told of a clean stop.
        recovery_point, log_start: as it was told.
        now_ms: clock of the loader, epoch milliseconds.
        settings: settings of its topic.
        remote: true if segments lie in remote storage.
    """

    path: Path
    test: str
    kind: str
    clean: bool
    recovery_point: int
    log_start: int
    now_ms: int
    settings: dict[str, str]
    remote: bool


@dataclass
class Figures:
    """Counters of what was compared, and the differences: (folder, text)."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[Folder, str]] = field(default_factory=list)

    def differs(self, comparison: str, folder: Folder, text: str) -> None:
        """Note a difference, or count it where it has a name."""
        if why := DOCUMENTED.get(f"{comparison} {folder.test.rpartition('.')[2]}"):
            self.counts[why] += 1
        else:
            self.wrong.append((folder, f"{comparison}: {folder.test}: {text}"))


# -- capture ------------------------------------------------------------------------------------------
def _jars(version: str) -> Path:
    early = release(version) < (3, 0)
    kafka = "org.apache.kafka"
    wanted: list[tuple[str, ...]] = []
    for name in ("kafka_2.12", "kafka-clients") if early else _TESTED:
        wanted += [(kafka, name, version), (kafka, name, version, "test")]
    if not early:
        wanted += [(kafka, name, version) for name in _BESIDE[release(version)[0]]]
    wanted += [tuple(jar.split(":")) for jar in (_TOOLS_2 if early else _TOOLS)]
    return fetched(f"tests-{version}", wanted)


def captured(version: str) -> list[Folder]:
    """Return the folders that the tests of a version make, after one run for each state of the agent."""
    digest = hashlib.sha256(AGENT.read_bytes() + repr(TESTS[version]).encode()).hexdigest()[:12]
    kept = cache_root() / f"folders-{version}-{digest}"
    with locked(cache_root() / f"folders-{version}.lock"):
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=cache_root()) as work:
                _run_tests(version, Path(work)).rename(kept)
    return read(kept)


def _run_tests(version: str, work: Path) -> Path:
    jars, made, kept, scratch = _jars(version), work / "agent", work / "kept", work / "tmp"
    for folder in (made, kept, scratch):
        folder.mkdir()
    buddy = jars / "byte-buddy-1.15.4.jar"
    subprocess.run(["javac", "-nowarn", "-d", made, "-cp", buddy, AGENT], check=True)
    (work / "manifest").write_text(f"Premain-Class: Folders\nClass-Path: {buddy.as_uri()}\n")
    agent = work / "agent.jar"
    subprocess.run(["jar", "cfm", agent, work / "manifest", "-C", made, "."], check=True)
    opened = [word for name in _OPENED for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
    argv = ["java", "-Xmx1500m", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={scratch}", *opened]
    argv += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", f"-javaagent:{agent}={kept}", "-cp", f"{jars}/*"]
    argv += ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner", "--details=none"]
    argv += [f"--select-class={name}" for name in TESTS[version]]
    subprocess.run(argv, capture_output=True, check=False)  # some tests need more than these jars, and fail
    return kept


def read(kept: Path) -> list[Folder]:
    """Read the folders that an agent kept, with a log in another state than before."""
    folders, known_digests = [], set()
    for one in sorted(kept.iterdir()):
        lines = re.sub(r"\\(.)", r"\1", (one / "facts.properties").read_text()).splitlines()
        facts = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        known = {key: int(value) for key, value in facts.items() if value.lstrip("-").isdigit()}
        kind, closed = one.name.partition("-")[0], one.name.startswith("close")
        settings = {key.removeprefix("config."): value for key, value in facts.items()}
        folder = Folder(
            path=one / "folder",
            test=facts["test"],
            kind=kind,
            clean=closed or facts["clean"] == "true",
            recovery_point=min(known.get("log_end" if closed else "recovery_point", 0), 2**62),
            log_start=known.get("log_start", 0),
            now_ms=known.get("now", 0),
            settings={key: settings[key] for key in sorted(_SETTINGS & settings.keys())},
            remote=facts["remote"] == "true" or settings.get("remote.storage.enable") == "true",
        )
        logs = list(folder.path.glob("*.log"))
        if not logs or folder.remote or sum(path.stat().st_size for path in logs) > MOST_BYTES:
            continue
        same = (
            kind,
            folder.clean,
            folder.recovery_point,
            folder.log_start,
            str(folder.settings),
            _digest(folder),
        )
        if same not in known_digests:
            known_digests.add(same)
            folders.append(folder)
    return folders


def _digest(folder: Folder) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.path.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


# -- comparisons --------------------------------------------------------------------------------------
class Site:
    """A log directory with a copy of each folder, as partition 0 of a topic of its own.

    Args:
        root: gets ``logs`` and the settings of the topics.
        folders: all of one kind of stop.
        judge: the classes of the broker's version.
    """

    def __init__(self, root: Path, folders: Sequence[Folder], judge: Judge) -> None:
        self.folders = {f"k{number}-0": folder for number, folder in enumerate(folders)}
        self.judge, self.root, self.logs = judge, root, root / "logs"
        self.logs.mkdir(parents=True)
        for name, folder in self.folders.items():
            shutil.copytree(
                folder.path, self.logs / name, ignore=shutil.ignore_patterns("partition.metadata")
            )
        for file, attribute in (
            ("recovery-point-offset-checkpoint", "recovery_point"),
            ("log-start-offset-checkpoint", "log_start"),
        ):
            rows = [f"{name[:-2]} 0 {getattr(folder, attribute)}" for name, folder in self.folders.items()]
            (self.logs / file).write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")
        if all(folder.clean for folder in folders):
            (self.logs / ".kafka_cleanshutdown").touch()
        # Kafka's own tests have segments below the limit of 4.1, and set it past the check that a start makes.
        topics = {
            name[:-2]: topic_config(LATEST, folder.settings) | {"cleanup.policy": "compact"}
            for name, folder in self.folders.items()
        }
        (root / "topics.json").write_text(json.dumps(topics))
        self.now_ms = max(folder.now_ms for folder in folders)

    def options(self, *fixes: str, **more: object) -> Options:
        """Return the options of the command line; no folder is younger than the clock."""
        fields = {"fixes": fixes, "now_ms": self.now_ms, "only_replica": ("*",)} | more
        return Options(
            engine=EngineName.INLINE,
            topic_config=str(self.root / "topics.json"),
            broker_version=self.judge.version,
            **fields,  # type: ignore[arg-type]
        )

    def checked(self, *, deep: bool = False) -> LogDirReport:
        """Run ``check`` on it."""
        return check([str(self.logs)], self.options(deep=deep)).log_dirs[0]

    def mended(self, options: Options, figures: Figures) -> dict[str, PartitionPlan]:
        """Plan, apply and verify; return the plan's partitions by folder."""
        plan = make_plan(str(self.logs), options)
        report = apply(plan, options)
        for result in report.results:
            if result.why:
                figures.differs("apply", self.folders[result.partition], result.why)
        for problem in verify_plan(plan, options).problems:
            figures.differs("verify", self.folders[problem.partition], problem.text)
        figures.counts["left alone"] += sum(partition.status == "left alone" for partition in plan.partitions)
        return {partition.folder: partition for partition in plan.partitions}

    def copy(self, name: str, folder: Path | None = None) -> Path:
        """Copy a folder; in its earlier state if one is named."""
        root = Path(tempfile.mkdtemp(dir=self.root))
        return Path(shutil.copytree(folder or self.folders[name].path, root / name))

    def started(self, name: str, folder: Path | None = None) -> tuple[Done, Path]:
        """Load a copy of a folder; return the loader's result and the copy."""
        captured_folder, copy = self.folders[name], self.copy(name, folder)
        try:
            start = self.judge.start(
                copy,
                clean=captured_folder.clean,
                recovery_point=captured_folder.recovery_point,
                log_start=captured_folder.log_start,
                settings=captured_folder.settings,
                now_ms=self.now_ms,
            )
        except JudgeError as error:
            return Done(None, str(error).partition("\n")[0]), copy
        return Done(start), copy

    def loaded(self, name: str, folder: Path) -> Loaded:
        """Return what the classes serve from a folder after a clean stop."""
        captured_folder = self.folders[name]
        return self.judge.load(
            folder,
            log_start=captured_folder.log_start,
            settings=captured_folder.settings,
            now_ms=self.now_ms,
            list_records=True,
        )


def forecasts(site: Site, figures: Figures) -> None:
    """Check that the forecast of ``check`` is what the loader does."""
    for line in site.checked().forecast:
        folder, (done, _) = site.folders[line.partition], site.started(line.partition)
        before = {int(path.stem): path.stat().st_size for path in folder.path.glob("*.log")}
        if line.expected == "unknown":
            figures.counts["forecasts that are not known"] += 1
            continue
        figures.counts["forecasts"] += 1
        ours, theirs = said_by(line, before), done_by(done, before)
        if _is_left(
            folder
        ):  # a swap that is finished takes the place of others: only what is left says what happened
            ours, theirs = ("", ours[1]), ("", theirs[1])
        if ours != theirs:
            figures.differs("forecast", folder, f"{ours} ({line.text}), the loader {theirs} {done.error}")
        elif done.started and line.log_end not in {-1, done.started.log_end}:
            figures.differs(
                "forecast", folder, f"log end {line.log_end}, the loader's {done.started.log_end}"
            )


def recovered(site: Site, figures: Figures) -> None:
    """Check that ``recovery`` leaves what the loader leaves: logs, indexes, epochs, and served records.

    Index files below the recovery point are left to ``index``: up to 2.2 a loader makes bad ones anew there, too.
    """
    for name, planned in site.mended(site.options("recovery"), figures).items():
        if planned.status != "change":
            continue
        folder, ours, (done, theirs) = site.folders[name], site.logs / name, site.started(name)
        if done.started is None:
            figures.differs("recovery", folder, f"mended, the loader: {done.error}")
            continue
        figures.counts["recoveries"] += 1
        if _logs(ours) != _logs(theirs):
            figures.differs("recovery", folder, "other logs than the loader leaves")
            continue
        bases = [int(path.stem) for path in theirs.glob("*.log")]
        first = max((base for base in bases if base <= folder.recovery_point), default=0)
        for path in sorted(path for path in theirs.iterdir() if path.suffix in _INDEXES):
            if path.with_suffix(".log").name not in _logs(theirs) or int(path.stem) < first:
                continue
            figures.counts["index files"] += 1
            if _entries(ours / path.name) != _entries(path):
                figures.differs("recovery", folder, f"{path.name} has other entries than the loader's")
        if _entries(ours / "leader-epoch-checkpoint") != _entries(theirs / "leader-epoch-checkpoint"):
            figures.differs("recovery", folder, "other leader epochs than the loader leaves")
        mine, other = site.loaded(name, ours), site.loaded(name, theirs)
        if (mine.log_end, mine.producers, mine.served) != (other.log_end, other.producers, other.served):
            figures.differs("recovery", folder, f"{mine} is served, after the loader {other}")


def put_away(site: Site, figures: Figures) -> None:
    """Check that after ``leftovers`` a start leaves the same logs as without it."""
    for name, planned in site.mended(site.options("leftovers"), figures).items():
        if planned.status != "change":
            continue
        (done, theirs), (after, ours) = site.started(name), site.started(name, site.logs / name)
        figures.counts["leftovers"] += 1
        if (done.error, _logs(ours)) != (after.error, _logs(theirs)):
            text = f"a start leaves other logs after it; {done.error} {after.error}"
            figures.differs("leftovers", site.folders[name], text)


def cleaned(site: Site, figures: Figures) -> None:
    """Check that ``compact,markers`` leaves what Kafka's cleaner leaves in the end, and records without a key."""
    later = site.now_ms + LATER_MS
    options = site.options(
        "compact",
        "markers",
        now_ms=later,
        delete_horizon=str(2**60),
        assume_high_watermark="log-end",
        settings=(("producer.id.expiration.ms", str(DAY_MS + LATER_MS)),),
    )
    for name, planned in site.mended(options, figures).items():
        if planned.status == "left alone":
            continue
        figures.counts["cleanings that change something"] += planned.status == "change"
        folder, ours, theirs = site.folders[name], site.copy(name, site.logs / name), site.copy(name)
        how: dict[str, Any] = {"settings": folder.settings, "now_ms": site.now_ms}
        end = planned.span.end_offset if planned.span else 0
        try:
            site.judge.recover(theirs, **how)
            before = site.loaded(name, theirs)
            site.judge.fixpoint(theirs, horizon=later, end=end, expire_producers=True, **how)
        except JudgeError as error:
            figures.counts[f"cleanings that end Kafka's cleaner: {str(error)[:80]}"] += 1
            continue
        site.judge.recover(ours, **how)
        mine, other = site.loaded(name, ours), site.loaded(name, theirs)
        figures.counts["cleanings"] += 1
        ours_uncommitted, kept = set(mine.uncommitted.records), set(other.uncommitted.records)
        keyless = {record for record in ours_uncommitted if record.key is None}
        figures.counts["records without a key stay"] += len(keyless - kept)
        for text, some in (
            ("lost", kept - ours_uncommitted),
            ("still there", ours_uncommitted - kept - keyless),
        ):
            if some:
                figures.differs(
                    "cleaning", folder, f"{len(some)} records {text}, first {min(some, key=_offset)}"
                )
        if (mine.log_end, mine.stable_offset) != (before.log_end, before.stable_offset):
            figures.differs("cleaning", folder, f"the log ends at {mine.log_end}, before at {before.log_end}")
        if _table(mine.committed.records) != _table(before.committed.records):
            figures.differs("cleaning", folder, "who reads it has another table than before")
    again = make_plan(str(site.logs), options)
    for planned in again.partitions:
        if planned.changes:
            figures.differs("cleaning", site.folders[planned.folder], "a second plan is not empty")


def health(site: Site, figures: Figures) -> None:
    """Check that a folder that Kafka closed itself has no finding."""
    figures.counts["healthy folders"] += len(site.folders)
    for finding in site.checked(deep=True).findings:
        if finding.partition and severity_of(finding) in {Severity.BROKER_DOWN, Severity.DATA_LOSS}:
            folder = site.folders[finding.partition]
            figures.differs(finding.rule, folder, f"{finding.file} {finding.evidence}")


def _logs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log") if path.stat().st_size}


def _entries(file: Path) -> bytes:
    """Return the entries of an index; zeros after them are preallocated."""
    return file.read_bytes().rstrip(b"\0") if file.exists() else b""


def _offset(record: Record) -> int:
    return record.offset


def _table(records: Sequence[Record]) -> dict[str, str]:
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if key is not None and value is not None}


def _is_left(folder: Folder) -> bool:
    return any(path.suffix in _LEFT for path in folder.path.iterdir())


COMPARISONS: Final[dict[str, tuple[Callable[[Folder], bool], Callable[[Site, Figures], None]]]] = {
    "clean": (lambda folder: folder.clean, forecasts),
    "killed": (lambda folder: not folder.clean, forecasts),
    "recovery": (lambda folder: not folder.clean and not _is_left(folder), recovered),
    "clean-leftovers": (lambda folder: folder.clean and _is_left(folder), put_away),
    "killed-leftovers": (lambda folder: not folder.clean and _is_left(folder), put_away),
    "cleaning": (lambda folder: not _is_left(folder), cleaned),
    "health": (lambda folder: folder.kind == "close" and not _is_left(folder), health),
}
"""Name -> (folders that it is about, what it compares)."""


def compared(kind: str, judge: Judge, folders: Sequence[Folder], work: Path) -> Figures:
    """Make one comparison for all folders that it concerns, with the classes of a version."""
    figures = Figures()
    about, comparison = COMPARISONS[kind]
    if some := [folder for folder in folders if about(folder)]:
        with tempfile.TemporaryDirectory(dir=work) as root:
            comparison(Site(Path(root), some, judge), figures)
    return figures


def run(seeds: range, workdir: Path, state: State) -> None:
    """Run once as a part of the programme: nothing is random."""
    del seeds
    for version, tests in JUDGES.items():
        with Judge(version) as judge:
            for comparison in COMPARISONS:
                unit = f"{version}:{comparison}"
                if not state.is_done(unit) and not state.time_is_up():
                    _run(unit, judge, captured(tests), workdir, state)


def _run(unit: str, judge: Judge, folders: Sequence[Folder], workdir: Path, state: State) -> None:
    try:
        figures = compared(unit.partition(":")[2], judge, folders, workdir)
    except (KrepairError, JudgeError) as error:
        state.wrong(unit, str(error))
        return
    for folder, text in figures.wrong:
        state.wrong(f"{unit}:{folder.path.parent.name}", text)
    state.keep(unit, figures.counts)


def replay(case: str, workdir: Path) -> list[str]:
    """Compare one folder again, or all of a unit."""
    version, comparison, *names = case.split(":")
    folders = [
        folder
        for folder in captured(JUDGES[version])
        if folder.path.parent.name in (names or folder.path.parts)
    ]
    with Judge(version) as judge:
        return [text for _, text in compared(comparison, judge, folders, workdir).wrong]
