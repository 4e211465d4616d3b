"""One record of up to 2 GB in a small batch: each verb, and each Spark worker, stays within 256 MB above start-up.

Key compaction and what goes with it; all other fixes on a directory that is damaged around that record; and the verbs
that hold two directories against each other. The limit is RLIMIT_AS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.formats.codec import Codec
from tests import builders
from tests.builders import LogDir, Record
from tests.look.huge_record import ABOVE, EVERY, HUGE_AT, SIZES, STEADY_MALLOC, batch

pytestmark = pytest.mark.slow
TOPICS = ("t", "__consumer_offsets", "__transaction_state")
FIXES = "leftovers,markers,tail,epochs,snapshots,index=regenerate,recovery,checkpoints"
Words = list[list[str]]
Results = list[tuple[int, str]]

# A small directory first, so that everything is imported and compiled when the limit is set. VmSize is in kB. Spark's
# workers live as long as its session, so that the limit can be set from here for those that have done the small one.
SCRIPT = """
import json, resource, sys
from pathlib import Path
from typer.testing import CliRunner
from krepair.cli.main import app

SMALL, LARGE = json.loads(sys.argv[1])
ENGINE, ABOVE = sys.argv[2], int(sys.argv[3])

def size(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmSize")).split()[1])

def workers():
    def below(pid):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from below(int(child))
    return [pid for pid in below("self") if b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"java")[0]]

def limit():
    if ENGINE == "inline":
        most = size("self") + ABOVE
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        return 0
    found = workers()
    most = max(map(size, found)) + ABOVE
    for pid in found:
        resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
    return len(found)

def work(verbs):
    found = []
    for words in verbs:
        done = CliRunner().invoke(app, words)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        found.append((done.exit_code, done.output[-9000:]))
    return found

if ENGINE == "spark":
    from krepair.engine.spark import SparkEngine
    SparkEngine.close = lambda self: None
small = work(SMALL)
limited = limit()
print("\\n" + json.dumps([limited, small, work(LARGE)]))
"""


def run(small: Words, large: Words, engine: str = "inline") -> tuple[int, Results, Results]:
    """How many workers were limited; exit code and words of each verb, without and under the limit."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([small, large]), engine, str(ABOVE)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **STEADY_MALLOC},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    limited, first, second = json.loads(done.stdout.splitlines()[-1])
    assert [text[-1500:] for code, text in second if code == ExitCode.BUG] == []
    return limited, first, second


# -- key compaction


def three_topics(root: Path, raw: bytes, last: int) -> Path:
    """Three topics, each with that batch in its second segment."""
    directory = LogDir(root)
    for topic in TOPICS:
        partition = directory.partition(topic)
        partition.segment(builders.data(0, [Record(b"old", b"x")] * HUGE_AT))
        partition.segment(builders.data(HUGE_AT, [Record(b"k%d" % n, b"y") for n in range(last - 2)]))
        partition.segment(builders.data(last + 1, [Record(b"old", b"x")]))
    directory.write()
    for partition in directory.partitions:
        (partition.folder / f"{HUGE_AT:020d}.log").write_bytes(raw)
        (partition.folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return root


def compacting(root: Path) -> Words:
    path, plan, on = str(root), f"{root}.plan", ["--engine", "inline"]
    asked = ["--fix", "compact", "--set", "cleanup.policy=compact", "--delete-horizon", "4000000000000"]
    return [
        ["plan", path, *asked, "--assume-high-watermark", "log-end", *on, "--out", plan],
        ["show", plan],
        ["apply", plan, *on],
        ["verify", plan, "--originals", *on],
        ["check", path, "--deep", *on],
        ["verify", path, *on],
        ["dump", str(root / "t-0" / f"{HUGE_AT:020d}.log")],
        ["groups", path, *on],
        ["transactions", path, *on],
    ]


def compacted(tmp_path: Path, raw: bytes, small: bytes, last: int) -> Results:
    roots = [three_topics(tmp_path / name, one, last) for name, one in (("small", small), ("large", raw))]
    return run(*map(compacting, roots))[2]


@pytest.mark.parametrize("codec", SIZES if EVERY else (Codec.LZ4,))
def test_a_partition_with_a_record_that_is_too_large_is_left_alone_and_no_verb_takes_more(
    tmp_path: Path, codec: Codec
) -> None:
    raw = batch(codec, [(b"k", SIZES[codec])], HUGE_AT)
    planned, shown, *_ = compacted(tmp_path, raw, batch(codec, [(b"k", 1000)], HUGE_AT), HUGE_AT)
    assert planned[0] == 2, planned[1]
    assert "the limit of krepair's compaction" in shown[1]
    assert "Kafka's cleaner would stop here too" not in shown[1]


@pytest.mark.parametrize("codec", SIZES if EVERY else (Codec.SNAPPY,))
def test_a_batch_with_a_record_that_is_just_small_enough_is_compacted_and_proven_within_it(
    tmp_path: Path, codec: Codec
) -> None:
    size = (23 if codec == Codec.ZSTD else 63) << 20
    raw, small = (batch(codec, [(b"old", 9), (b"k", one)], HUGE_AT) for one in (size, 1000))
    planned, _, applied, verified, *_ = compacted(tmp_path, raw, small, HUGE_AT + 1)
    assert planned[0] == 2, planned[1]
    assert "compaction does not take" not in planned[1]
    assert (applied[0], verified[0]) == (0, 0)


# -- all other fixes, and two directories


def damaged(root: Path, raw: bytes, other: bytes) -> Path:
    """Of an unclean stop: wrong indexes, no snapshot, a torn tail. The other broker's batch has another value."""
    for name, huge in (("logs", raw), ("other", other)):
        directory = LogDir(root / name)
        partition = directory.partition("t")
        partition.segment(builders.data(0, [Record(b"old", b"x")] * HUGE_AT))
        partition.segment(builders.data(HUGE_AT, [Record(b"k", b"y")]))
        partition.segment(builders.data(HUGE_AT + 1, [Record(b"old", b"x")]))
        directory.write(clean_stop=False)
        if name == "other":
            meta = root / name / "meta.properties"
            meta.write_text(meta.read_text().replace("broker.id=0", "broker.id=1"))
        folder = partition.folder
        (folder / f"{HUGE_AT:020d}.log").write_bytes(huge)
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        if name == "logs":
            for wrong in (f"{HUGE_AT:020d}.index", f"{HUGE_AT:020d}.timeindex"):
                (folder / wrong).write_bytes(b"\7" * 48)
            with (folder / f"{HUGE_AT + 1:020d}.log").open("ab") as log:
                log.write(builders.data(HUGE_AT + 2, 1).raw[:70])
    (root / "topics.json").write_text(json.dumps({"t": {"cleanup.policy": "compact"}}))
    return root


def every_verb(root: Path, engine: str) -> Words:
    path, other, plan, facts = (str(root / name) for name in ("logs", "other", "plan", "facts"))
    on = ["--engine", engine]
    here = ["--topic-config", str(root / "topics.json"), "--assume-high-watermark", "log-end"]
    return [
        ["check", path, "--deep", *on],
        ["plan", path, "--fix", FIXES, *here, *on, "--out", plan],
        ["apply", plan, *on],
        ["verify", plan, *on],
        ["undo", plan, *on],
        ["apply", plan, *on],
        ["purge", plan],
        ["facts", path, "--out", facts, *on],
        ["compare", f"0={path}", f"1={other}", *on],
        ["compare", f"0={facts}", f"1={other}", *on],
        ["groups", path, *on],
        ["transactions", path, *on],
        ["verify", path, *on],
    ]


@pytest.mark.parametrize("codec", SIZES if EVERY else (Codec.LZ4,))
@pytest.mark.parametrize(
    "engine",
    [
        "inline",
        pytest.param(
            "spark",
            marks=[
                pytest.mark.spark,
                pytest.mark.skipif(not EVERY, reason="three minutes: KREPAIR_HUGE_RECORDS=1"),
            ],
        ),
    ],
)
def test_no_verb_and_no_worker_takes_more(tmp_path: Path, codec: Codec, engine: str) -> None:
    roots = []
    for name, size in (("small", 1000), ("large", SIZES[codec])):
        raw, other = (batch(codec, [(b"k", size - less)], HUGE_AT) for less in (0, 1))
        roots.append(damaged(tmp_path / name, raw, other))
    verbs = [every_verb(root, engine) for root in roots]
    limited, small, large = run(*verbs, engine)
    assert (limited >= 1) == (engine == "spark")
    # a record that is too large to be compared: ``facts`` and ``compare`` leave its log out
    expected = [
        15 if words[0] in {"facts", "compare"} else code
        for words, (code, _) in zip(verbs[0], small, strict=True)
    ]
    assert [code for code, _ in large] == expected
