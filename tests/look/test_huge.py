"""A batch far larger than any buffer passes scan, rewrite, verification and regeneration in bounded memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.formats.compression import Codec
from tests import builders, old_messages
from tests.builders import LogDir, Record
from tests.encoders import compress
from tests.look.huge_record import EVERY

# In a process of its own, so that the peak is that of the work; a small log directory first, so that everything is
# imported and compiled when the peak is set back. Lines of Linux's /proc are in kB.
SCRIPT = """
import json, sys
from dataclasses import replace
from pathlib import Path
from krepair.checks.walk import walk
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.options import EngineName, Options
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.scan.segment_files import rebuild_offset_and_time
from krepair.rewrite.indexes.transactions import replayed

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

def work(path):
    options = Options(
        delete_horizon="4000000000000", now_ms=1_800_000_000_000, engine=EngineName.INLINE, only_replica=("*",)
    )
    codes = [int(check((path,), options).exit_code)]
    plan = make_plan(path, options)
    codes.append(int(apply(plan, options).exit_code))
    codes.append(int(verify_plan(plan, replace(options, originals=True)).exit_code))
    codes.append(int(verify_log_dir(path, options).exit_code))
    log = sorted(Path(path).glob("*/*.log"))[0]
    made = rebuild_offset_and_time(str(log), log.stat().st_size, 0, 4096)
    list(replayed(str(log.parent), [(0, log.stat().st_size)]))
    same = [log.with_suffix(".index").read_bytes() == made.index]
    same.append(log.with_suffix(".timeindex").read_bytes() == made.time_index)
    part = plan.partitions[0]
    freed = part.log_bytes_before - part.log_bytes_after
    return codes, made.batches, made.valid_bytes == log.stat().st_size, same, freed

work(sys.argv[1])
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS:")
result = work(sys.argv[2])
print(json.dumps([result, memory("VmHWM:") - before]))
"""
STREAM = """
import sys
from pathlib import Path
from krepair.formats.compression import Codec, chunks
from tests.encoders import compress

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

codec, path, cap = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
assert list(chunks(codec, compress(codec, b"x" * 1000)))
data = Path(path).read_bytes()
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS:")
produced, damaged = 0, False
for piece in chunks(codec, data, max_bytes=cap):
    damaged = not isinstance(piece, bytes)
    produced += 0 if damaged else len(piece)
print(produced, damaged, memory("VmHWM:") - before)
"""
MIB = 1 << 20


def written(path: Path, megabytes: int) -> Path:
    """Old messages, emptied batches, markers, and of v1 and v2 one message or batch of that size."""
    value = random.Random(7).randbytes(MIB) * megabytes
    directory = LogDir(path)
    directory.partition("__consumer_offsets").segment(
        old_messages.plain(0, magic=0),
        old_messages.plain(1, value),
        builders.emptied(2, pid=1),
        builders.commit(3, pid=1),
        builders.data(4, [Record(b"k", value)], pid=2, txn=True),
        builders.commit(5, pid=2),
        builders.emptied(6, pid=1),
        builders.commit(7, pid=1),
    ).segment(builders.data(8, 3))
    directory.write()
    (path / "__consumer_offsets-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return path


def peak(tmp_path: Path, megabytes: int) -> int:
    """Bytes above what the interpreter and its libraries take."""
    small, large = written(tmp_path / "small", 0), written(tmp_path / "large", megabytes)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(small), str(large)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result, above = json.loads(done.stdout)
    # freed: two emptied batches, a marker, and what is emptied of the marker that stays as the last batch
    assert result == [[2, 0, 0, 0], 5, True, [True, True], 2 * 61 + 78 + 17]
    return int(above)


@pytest.mark.parametrize(("megabytes", "most"), [(32, 24), *([(300, 400)] if EVERY else [])])
def test_batch_of_many_windows_takes_less_memory_than_itself(
    tmp_path: Path, megabytes: int, most: int
) -> None:
    assert peak(tmp_path, megabytes) < most * MIB


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("megabytes", [48, 300] if EVERY else [48], ids="{} MiB".format)
def test_content_is_streamed_and_stopped_at_the_cap(tmp_path: Path, codec: Codec, megabytes: int) -> None:
    content = (random.Random(3).randbytes(MIB // 6) + bytes(MIB - MIB // 6)) * megabytes
    path = tmp_path / "compressed"
    path.write_bytes(compress(codec, content))

    def streamed(cap: int) -> tuple[int, bool, int]:
        argv = [sys.executable, "-c", STREAM, str(int(codec)), str(path), str(cap)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        produced, damaged, above = done.stdout.split()
        return int(produced), damaged == "True", int(above)

    whole = streamed(1 << 30)
    assert whole[:2] == (len(content), False)
    capped = streamed(20 * MIB)
    assert capped[1]
    assert capped[0] <= 20 * MIB
    assert max(whole[2], capped[2]) < 24 * MIB
