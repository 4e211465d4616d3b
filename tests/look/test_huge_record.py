"""One record of up to 2 GB in a small batch: each verb stays within 256 MB above start-up (RLIMIT_AS)."""

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
from tests.look.huge_record import (
    ABOVE,
    EVERY,
    HUGE_AT,
    SIZES,
    STEADY_MALLOC,
    batch,
)

pytestmark = pytest.mark.slow
TOPICS = ("t", "__consumer_offsets", "__transaction_state")

# A small log directory first, so that everything is imported and compiled when the limit is set. VmSize is in kB.
SCRIPT = """
import json, resource, sys
from dataclasses import replace
from pathlib import Path
from typer.testing import CliRunner
from krepair.cli.main import app

def size():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmSize")).split()[1])

def verbs(path, beside):
    log = sorted(Path(path).glob("t-0/*.log"))[1]
    plan = [
        "plan", path, "--fix", "compact", "--set", "cleanup.policy=compact", "--engine", "inline",
        "--delete-horizon", "4000000000000", "--assume-high-watermark", "log-end", "--out", beside + "/plan",
    ]
    yield plan
    yield ["show", beside + "/plan"]
    yield ["apply", beside + "/plan", "--engine", "inline"]
    yield ["verify", beside + "/plan", "--originals", "--engine", "inline"]
    yield ["check", path, "--deep", "--engine", "inline"]
    yield ["verify", path, "--engine", "inline"]
    yield ["dump", str(log)]
    yield ["groups", path, "--engine", "inline"]
    yield ["transactions", path, "--engine", "inline"]

def work(path, beside):
    found = []
    for words in verbs(path, beside):
        done = CliRunner().invoke(app, words)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        found.append((" ".join(words[:1] + ["PLAN"] * (beside in words[1])), done.exit_code, done.output[-9000:]))
    return found

work(sys.argv[1], sys.argv[3] + "/a")
limit = size() + int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(json.dumps(work(sys.argv[2], sys.argv[3] + "/b")))
"""


def written(path: Path, raw: bytes, last: int) -> Path:
    """Three topics, each with that batch in its second segment."""
    directory = LogDir(path)
    for topic in TOPICS:
        partition = directory.partition(topic)
        partition.segment(builders.data(0, [Record(b"old", b"x")] * HUGE_AT))
        partition.segment(builders.data(HUGE_AT, [Record(b"k%d" % n, b"y") for n in range(last - 2)]))
        partition.segment(builders.data(last + 1, [Record(b"old", b"x")]))
    directory.write()
    for partition in directory.partitions:
        (partition.folder / f"{HUGE_AT:020d}.log").write_bytes(raw)
        (partition.folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return path


def run(tmp_path: Path, raw: bytes, small: bytes, last: int) -> dict[str, tuple[int, str]]:
    """Exit code, and what was said, of each verb under the limit."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = written(tmp_path / "small", small, last), written(tmp_path / "large", raw, last)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(first), str(second), str(tmp_path), str(ABOVE)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **STEADY_MALLOC},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {verb: (code, text) for verb, code, text in json.loads(done.stdout)}
    assert [text[-1500:] for code, text in found.values() if code == ExitCode.BUG] == []
    return found


@pytest.mark.parametrize("codec", SIZES if EVERY else (Codec.LZ4,))
def test_a_partition_with_a_record_that_is_too_large_is_left_alone_and_no_verb_takes_more(
    tmp_path: Path, codec: Codec
) -> None:
    raw = batch(codec, [(b"k", SIZES[codec])], HUGE_AT)
    found = run(tmp_path, raw, batch(codec, [(b"k", 1000)], HUGE_AT), HUGE_AT)
    code, said = found["plan"]
    assert code == 2, said
    said = found["show PLAN"][1]
    assert "compaction does not take larger ones" in said
    assert "Kafka's cleaner would stop here too" not in said


@pytest.mark.parametrize("codec", SIZES if EVERY else (Codec.SNAPPY,))
def test_a_batch_with_a_record_that_is_just_small_enough_is_compacted_and_proven_within_it(
    tmp_path: Path, codec: Codec
) -> None:
    size = (23 if codec == Codec.ZSTD else 63) << 20
    raw = batch(codec, [(b"old", 9), (b"k", size)], HUGE_AT)
    found = run(tmp_path, raw, batch(codec, [(b"old", 9), (b"k", 1000)], HUGE_AT), HUGE_AT + 1)
    assert found["plan"][0] == 2, found["plan"][1]
    assert "compaction does not take" not in found["plan"][1]
    assert (found["apply PLAN"][0], found["verify PLAN"][0]) == (0, 0)
