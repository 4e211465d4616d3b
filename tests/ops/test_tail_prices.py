"""Random damage to partitions: the forecast is that of a slow twin of recovery, and what stays is what is valid."""

from __future__ import annotations

import re
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.undo import undo
from krepair.ops.verify import verify_log_dir, verify_plan
from tests.commit.scene import UnsyncedDisk
from tests.ops.scene import tree
from tests.ops.tail import INTERVAL, Torn, options
from tests.rewrite.damage import twin

SEGMENTS = 3
SPAN = 50
CONSENT = re.compile(r"--accept-data-loss (\S+)")
CUT = re.compile(
    r"recovery cuts (\d{20})\.log at position (\d+): (\d+) bytes?(?:, (\d+) later segments? among them)?"
)
DAMAGE = st.lists(
    st.tuples(
        st.integers(0, SEGMENTS - 1),
        st.sampled_from(["flip", "zero", "cut", "garbage", "repeat"]),
        st.floats(0, 1),
        st.integers(1, 400),
    ),
    min_size=1,
    max_size=4,
)


@dataclass
class Recovered:
    """What a broker's recovery does to a partition: where it cuts, and which segments it deletes."""

    segment: int = -1
    position: int = -1
    bytes: int = 0
    deleted: int = 0


def recover_segment(raw: bytes, base: int) -> int:
    """Valid bytes as LogSegment.recover finds them (Kafka 2.2.1, 3.9).

    0 also where its own index entries go back; -1 where it comes to an offset that does not fit the segment.
    """
    place, last_entry, last_offset = 0, 0, base
    largest, of_largest, written, written_offset = -1, -1, -1, -1
    while place + 17 <= len(raw):
        offset, length = struct.unpack_from(">qi", raw, place)
        end = place + 12 + length
        # a magic above 2 is read as v2, and no checksum covers it; below 2 another checksum is looked for
        if length < 14 or end > len(raw) or length < 49 or not 2 <= raw[place + 16] < 128:
            break
        if crc32c.crc32c(raw[place + 21 : end]) != struct.unpack_from(">I", raw, place + 17)[0]:
            break
        last = offset + struct.unpack_from(">i", raw, place + 23)[0]
        if not 0 <= last - base < 2**31:
            return -1
        timestamp = struct.unpack_from(">q", raw, place + 35)[0]
        if timestamp > largest:
            largest, of_largest = timestamp, last
        if place - last_entry > INTERVAL:
            if last <= last_offset or of_largest < written_offset:
                return 0
            last_entry, last_offset = place, last
            if largest > written:
                written, written_offset = largest, of_largest
        place = end
    return place


def recover(logs: list[bytes]) -> Recovered:
    for number, raw in enumerate(logs):
        valid = recover_segment(raw, number * SPAN)
        if valid < 0:
            return Recovered(number)
        if valid < len(raw):
            later = logs[number + 1 :]
            return Recovered(number, valid, len(raw) - valid + sum(map(len, later)), len(later))
    return Recovered()


def damaged(raw: bytes, kind: str, where: float, size: int) -> bytes:
    place = int(where * max(len(raw) - 1, 0))
    if kind == "flip" and raw:
        return raw[:place] + bytes([raw[place] ^ (size % 255 + 1)]) + raw[place + 1 :]
    if kind == "zero":
        return raw[:place] + bytes(min(size, len(raw) - place)) + raw[place + size :]
    if kind == "cut":
        return raw[: max(len(raw) - size, 0)]
    if kind == "garbage":
        return raw + b"\xa7" * size
    return raw[:place] + raw[max(place - size, 0) : place] + raw[place:]


@pytest.mark.slow
@settings(max_examples=60)
@given(damage=DAMAGE)
def test_forecast_is_the_twins_recovery_and_consents_leave_exactly_what_is_valid(
    damage: list[tuple[int, str, float, int]],
) -> None:
    with tempfile.TemporaryDirectory() as work:
        torn = Torn.make(Path(work) / "logs", SEGMENTS)
        for number, kind, where, size in damage:
            torn.write(number, damaged(torn.log(number).read_bytes(), kind, where, size))
        logs = [torn.log(number).read_bytes() for number in range(SEGMENTS)]
        before = tree(torn.root)
        report = torn.check()
        expected = recover(logs)
        (line,) = report.forecast
        found = CUT.search(line.text)
        if expected.segment < 0:
            assert found is None, line
        elif expected.position < 0:
            assert line.expected == "refuse" or any("splits" in one.evidence for one in report.findings)
        else:
            assert found, line
            assert (
                Recovered(int(found[1]) // SPAN, int(found[2]), int(found[3]), int(found[4] or 0)) == expected
            )
        consents = {consent for finding in report.findings for consent in CONSENT.findall(finding.evidence)}
        plan = torn.plan(accepted_losses=tuple(sorted(consents)))
        maps = [
            twin(number * SPAN, raw, SPAN - 1 if number < SEGMENTS - 1 else 2**31 - 1)
            for number, raw in enumerate(logs)
        ]
        left = [
            b"".join(raw[start:end] for start, end, _, _ in valid)
            for raw, (valid, _) in zip(logs, maps, strict=True)
        ]
        assert plan.partitions[0].log_bytes_before - plan.partitions[0].log_bytes_after == sum(
            end - start for _, ranges in maps for start, end in ranges
        )
        assert apply(plan, options(), disk=UnsyncedDisk()).exit_code == ExitCode.DONE
        assert [torn.log(number).read_bytes() for number in range(SEGMENTS)] == left
        assert verify_plan(plan, options()).problems == ()
        assert verify_log_dir(str(torn.root), options()).problems == ()
        assert not torn.plan().partitions[0].changes
        assert undo(plan, options(), disk=UnsyncedDisk()).exit_code == ExitCode.DONE
        assert tree(torn.root) == before
