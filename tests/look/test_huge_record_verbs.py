"""One record of up to 2 GB in a small batch: every other verb, and each Spark worker, stays within 256 MB above start.

``test_huge_record`` has key compaction and the verbs that go with it. Here are all fixes on a directory that is damaged
around that record, and the verbs that hold two directories against each other. The limit is RLIMIT_AS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.formats.codec import Codec
from tests import builders
from tests.builders import LogDir, Record
from tests.look.huge_record import ABOVE, EVERY, HUGE_AT, SIZES, STEADY_MALLOC, batch

pytestmark = pytest.mark.slow
CODECS = list(SIZES) if EVERY else [Codec.LZ4]
FIXES = "leftovers,markers,tail,epochs,snapshots,index=regenerate,recovery,checkpoints"

# A small directory first, so that everything is imported and compiled when the limit is set. VmSize is in kB. Spark's
# workers live as long as its session, so that the limit can be set from here for those that have done the small one.
SCRIPT = """
import json, resource, sys
from pathlib import Path
from typer.testing import CliRunner
from krepair.cli.main import app

ENGINE, ABOVE = sys.argv[4], int(sys.argv[5])

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

def verbs(root, beside):
    path, other, on = root + "/logs", root + "/other", ["--engine", ENGINE]
    here = ["--topic-config", root + "/topics.json", "--assume-high-watermark", "log-end"]
    yield ["check", path, "--deep", *on]
    yield ["plan", path, "--fix", "FIXES", *here, *on, "--out", beside + "/plan"]
    yield ["apply", beside + "/plan", *on]
    yield ["verify", beside + "/plan", *on]
    yield ["undo", beside + "/plan", *on]
    yield ["apply", beside + "/plan", *on]
    yield ["purge", beside + "/plan"]
    yield ["facts", path, "--out", beside + "/facts", *on]
    yield ["compare", "0=" + path, "1=" + other, *on]
    yield ["compare", "0=" + beside + "/facts", "1=" + other, *on]
    yield ["groups", path, *on]
    yield ["transactions", path, *on]
    yield ["verify", path, *on]

def work(root, beside):
    found = []
    for words in verbs(root, beside):
        words = [FIXES if word == "FIXES" else word for word in words]
        done = CliRunner().invoke(app, words)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        found.append((words[0], done.exit_code, done.output[-5000:]))
    return found

if ENGINE == "spark":
    from krepair.engine.spark import SparkEngine
    SparkEngine.close = lambda self: None
FIXES = sys.argv[6]
small = work(sys.argv[1], sys.argv[3] + "/a")
limited = limit()
large = work(sys.argv[2], sys.argv[3] + "/b")
print("\\n" + json.dumps([limited, small, large]))
"""


def written(root: Path, raw: bytes, other: bytes) -> Path:
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


def run(tmp_path: Path, codec: Codec, engine: str) -> tuple[int, list[list[object]], list[list[object]]]:
    roots = []
    for name, size in (("small", 1000), ("large", SIZES[codec])):
        raw, other = (batch(codec, [(b"k", size - less)], HUGE_AT) for less in (0, 1))
        roots.append(str(written(tmp_path / name, raw, other)))
        (tmp_path / {"small": "a", "large": "b"}[name]).mkdir()
    argv = [sys.executable, "-c", SCRIPT, *roots, str(tmp_path), engine, str(ABOVE), FIXES]
    env = {**os.environ, **STEADY_MALLOC}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    limited, small, large = json.loads(done.stdout.splitlines()[-1])
    return limited, small, large


def refused(small: list[list[object]]) -> list[tuple[object, object]]:
    """What the verbs give on a record that is too large to be compared: ``facts`` and ``compare`` leave its log out."""
    return [(verb, 15 if verb in {"facts", "compare"} else code) for verb, code, _ in small]


@pytest.mark.parametrize("codec", CODECS)
def test_no_verb_takes_more_inline(tmp_path: Path, codec: Codec) -> None:
    _, small, large = run(tmp_path, codec, "inline")
    assert [(verb, code) for verb, code, _ in large] == refused(small)


@pytest.mark.spark
@pytest.mark.skipif(not EVERY, reason="three minutes: KREPAIR_HUGE_RECORDS=1")
@pytest.mark.parametrize("codec", CODECS)
def test_no_spark_worker_takes_more(tmp_path: Path, codec: Codec) -> None:
    limited, small, large = run(tmp_path, codec, "spark")
    assert limited >= 1
    assert [(verb, code) for verb, code, _ in large] == refused(small)
