"""Repaired logs and removed bytes, read again: apply's results are accepted, any damage or planted defect is not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from krepair.derive.index_entries import IndexEntries
from krepair.formats import txn_index
from krepair.ops.verify import verify_plan
from krepair.plan.model import MendLog, SetAside
from krepair.rewrite import damage
from tests import builders
from tests.builders import abort, data
from tests.ops.tail import WAYS, Torn
from tests.ops.tail import options as tail_options
from tests.readings.scenes import Applied, applied, options, read

EXCISE = WAYS["excise"]


def torn(root: Path, **given: object) -> Applied:
    """A torn tail, cut; or damage in the middle, taken out."""
    scene = Torn.make(root)
    if given:
        scene.flip(1, scene.places(1)[3] + 80)
    else:
        scene.tear(bytes(500))
    return applied(scene.root, tail_options(**given))


def changed(path: Path, edit: Callable[[bytes], bytes]) -> None:
    """Other bytes, the same times."""
    found = path.stat()
    path.write_bytes(edit(path.read_bytes()))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def flipped(position: int) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]


def log_of(done: Applied) -> Path:
    (change,) = (one for one in done.part.changes if isinstance(one, MendLog))
    return done.folder / change.name


@pytest.mark.parametrize("given", [{}, EXCISE], ids=["cut", "excise"])
def test_what_apply_makes_is_right(tmp_path: Path, given: dict[str, object]) -> None:
    done = torn(tmp_path / "logs", **given)
    assert done.problems() == []
    assert verify_plan(done.plan, done.options).problems == ()


def second_batch(raw: bytes) -> int:
    return 12 + int.from_bytes(raw[8:12], "big")


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a record": (".log", flipped(90), "CRC"),
    "an offset": (".log", lambda raw: flipped(second_batch(raw) + 7)(raw), "offset"),
    "a leader epoch, which no checksum covers": (".log", flipped(15), "the plan makes"),
    "the last batch is gone": (".log", lambda raw: raw[:-100], "bytes were expected"),
    "a position": (".index", flipped(6), "no batch starts there"),
    "an offset of the index": (".index", lambda raw: raw[:3] + b"\x01" + raw[4:], "end at offset"),
    "a timestamp": (".timeindex", flipped(-5 % 12), "timestamp"),
    "index entries gone": (".timeindex", lambda raw: raw[:-12], "timestamp"),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("given", [{}, EXCISE], ids=["cut", "excise"])
def test_one_damage_is_found(tmp_path: Path, name: str, given: dict[str, object]) -> None:
    done = torn(tmp_path / "logs", **given)
    suffix, edit, words = DAMAGES[name]
    changed(log_of(done).with_suffix(suffix), edit)
    problems = done.problems()
    assert any(words in text for text in problems), problems


def test_another_time_and_another_original_are_found(tmp_path: Path) -> None:
    done = torn(tmp_path / "logs", **EXCISE)
    log = log_of(done)
    (kept,) = done.folder.glob("krepair~*/keep/*.log")
    changed(kept, flipped(90))
    assert any("is not the original's bytes at position" in text for text in done.problems())
    changed(kept, flipped(90))
    os.utime(log, ns=(5, 5))
    assert any("modification time" in text for text in done.problems())
    cut = torn(tmp_path / "cut")
    (kept,) = cut.folder.glob("krepair~*/keep/*.cut")
    changed(kept, flipped(9))
    assert any("the kept bytes are not the" in text for text in cut.problems())


@pytest.mark.parametrize("edit", [lambda raw: raw + b"x", lambda raw: raw[:-1]], ids=["longer", "shorter"])
def test_another_size_of_the_original_is_found(tmp_path: Path, edit: Callable[[bytes], bytes]) -> None:
    done = torn(tmp_path / "logs", **EXCISE)
    (kept,) = done.folder.glob("krepair~*/keep/*.log")
    words = f"the kept original does not have {kept.stat().st_size} bytes"
    changed(kept, edit)
    assert any(text.endswith(words) for text in done.problems())


def _positions(offsets: Any, times: Any) -> None:
    offsets[:, 1] += 1


def _offsets(offsets: Any, times: Any) -> None:
    offsets[:, 0] -= 30


def _times(offsets: Any, times: Any) -> None:
    times[:, 0] -= 1


@pytest.mark.parametrize("edit", [_positions, _offsets, _times])
def test_a_defect_of_the_first_implementation_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: Callable[[Any, Any], None]
) -> None:
    real = IndexEntries.entries

    def wrong(entries: IndexEntries) -> tuple[Any, Any]:
        made = real(entries)
        edit(*made)
        return made

    monkeypatch.setattr(IndexEntries, "entries", wrong)
    done = torn(tmp_path / "logs", **EXCISE)
    assert done.problems() != []
    assert verify_plan(done.plan, done.options).problems != ()


def test_bytes_changed_by_mistake_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader epoch, which no checksum covers, so that the new log is valid."""
    real = damage._pieces

    def careless(read_into: Any, start: int, end: int) -> Iterator[bytes]:
        for piece in real(read_into, start, end):
            yield flipped(15)(piece) if start == 0 else piece

    monkeypatch.setattr(damage, "_pieces", careless)
    done = torn(tmp_path / "logs", **EXCISE)
    assert any("is not the original's bytes at position 0" in text for text in done.problems())
    assert verify_plan(done.plan, done.options).problems != ()


def test_aborts_lost_from_a_mended_logs_transaction_index_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scene(root: Path) -> Path:
        directory = builders.LogDir(root)
        directory.partition("t").segment(
            data(0, 2, pid=7, txn=True),
            abort(2, pid=7),
            data(3, 2, pid=8, txn=True),
            abort(5, pid=8),
            data(6),
        )
        directory.write(clean_stop=False)
        log = root / "t-0" / f"{0:020d}.log"
        log.write_bytes(log.read_bytes() + data(7, pid=9, txn=True).raw[:-5])
        entries = txn_index.decode((root / "t-0" / f"{0:020d}.txnindex").read_bytes())
        assert len(entries) == 2
        more = entries[1]._replace(producer_id=9, first_offset=7, last_offset=8, last_stable_offset=9)
        (root / "t-0" / f"{0:020d}.txnindex").write_bytes(txn_index.encode((*entries, more)))
        return root

    right = applied(scene(tmp_path / "right"), options("tail"))
    assert right.problems() == []
    real = damage._true_entries
    monkeypatch.setattr(damage, "_true_entries", lambda *given: (real(*given) or b"")[:34])
    wrong = applied(scene(tmp_path / "wrong"), options("tail"))
    problems = wrong.problems()
    assert any("producer 8 at 3 to 5 (stable 6) was aborted and is missing" in text for text in problems), (
        problems
    )


def test_a_segment_that_is_back_or_was_not_kept_is_found(tmp_path: Path) -> None:
    scene = Torn.make(tmp_path / "logs", clean_stop=True)
    scene.flip(1, scene.places(1)[3] + 80)
    done = applied(scene.root, tail_options(**WAYS["broker"]))
    assert any(isinstance(one, SetAside) for one in done.part.changes)
    assert done.problems() == []
    (keep,) = done.folder.glob("krepair~*/keep")
    kept = sorted(keep.glob("*.log"))[-1]
    (done.folder / kept.name).write_bytes(b"")
    assert any(f"{kept.name} is there" in text for text in done.problems())
    (done.folder / kept.name).unlink()
    data_kept = kept.read_bytes()
    kept.write_bytes(data_kept[:-1])
    assert any("the backup is not the file of" in text for text in done.problems())
    kept.unlink()
    assert any("has no backup in" in text for text in done.problems())


def test_every_reading_says_what_it_cannot_read(tmp_path: Path) -> None:
    done = torn(tmp_path / "logs", **EXCISE)
    works = [work for _, work in done.works()]
    log_of(done).unlink()
    assert any("No such file" in text for work in works for text in read(work))


def test_offsets_that_are_not_the_segments_are_found(tmp_path: Path) -> None:
    done = torn(tmp_path / "logs", **EXCISE)
    work = next(work for change, work in done.works() if isinstance(change, MendLog))
    (item,) = work.items
    last = item.change.last_offset
    for next_base, found in ((-1, False), (last + 1, False), (last, True)):
        texts = read(work._replace(items=(msgspec.structs.replace(item, next_base=next_base),)))
        assert any("is not below the next segment's" in text for text in texts) is found
