"""Root checkpoints read again: what is mended is right; a line that changed without need, or is lost, is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.errors import ExitCode
from krepair.formats.checkpoint import decode_offsets, encode_offsets
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.pipeline.readings.checkpoints import changed_keys, checkpoint_problems
from krepair.rules import checkpoints
from krepair.rules.checkpoints import KINDS, mend_offsets
from tests import builders
from tests.readings.scenes import options

TOPICS = ["a", "b", "gone"]
ENDS = {("a", 0): 10, ("a", 1): None, ("b", 0): 0, ("b", 1): 7}
TOLD = {key: -1 if end is None else end for key, end in ENDS.items()}

lines = st.lists(
    st.one_of(
        st.builds("{} {} {}".format, st.sampled_from(TOPICS), st.integers(0, 1), st.integers(-2, 12)),
        st.sampled_from(["", "a 0", "a 0 x", "b 0 1 2"]),
    ),
    max_size=6,
)


def bytes_of(rows: list[str], count: int, end: str) -> bytes:
    return ("\n".join(["0", str(count), *rows]) + end).encode()


@given(st.sampled_from(KINDS), lines, st.integers(-1, 1), st.sampled_from(["\n", ""]))
def test_whatever_is_mended_is_right(
    kind: checkpoints.CheckpointKind, rows: list[str], more: int, end: str
) -> None:
    old = bytes_of(rows, len(rows) + more, end)
    new = mend_offsets(kind, old, ENDS).data
    assert checkpoint_problems(kind.name, old, new, TOLD) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.rule)
def test_one_wrong_line_is_found(kind: checkpoints.CheckpointKind) -> None:
    old = bytes_of(["a 0 99", "a 1 99", "b 0 0", "b 1 5", "gone 0 3", "a 0 -1"], 6, "\n")
    right = mend_offsets(kind, old, ENDS).entries
    assert checkpoint_problems(kind.name, old, encode_offsets(right), TOLD) == []
    for number, entry in enumerate(right):
        for offset in (entry.offset + 1, entry.offset - 1):
            wrong = [*right]
            wrong[number] = entry._replace(offset=offset)
            assert checkpoint_problems(kind.name, old, encode_offsets(wrong), TOLD) != [], wrong
        lost = right[:number] + right[number + 1 :]
        assert checkpoint_problems(kind.name, old, encode_offsets(lost), TOLD) != []
    for more in (("gone", 0, 3), ("b", 2, 0)):
        grown = [*right, right[0]._replace(topic=more[0], partition=more[1], offset=more[2])]
        assert checkpoint_problems(kind.name, old, encode_offsets(grown), TOLD) != []
    assert checkpoint_problems(kind.name, old, encode_offsets(right[::-1]), TOLD) != []
    assert checkpoint_problems(kind.name, old, encode_offsets(right)[:-1], TOLD) != []


def test_only_logs_of_changed_lines_have_to_be_read() -> None:
    old, new = bytes_of(["a 0 99", "b 1 5", "b 0 0"], 3, "\n"), bytes_of(["a 0 10", "b 1 5"], 2, "\n")
    assert changed_keys(old, new) == {("a", 0), ("b", 0)}


def made(root: Path) -> Path:
    directory = builders.LogDir(root)
    for topic in ("t", "u"):
        directory.partition(topic).segment(builders.data(0, 5))
    directory.write()
    (root / "replication-offset-checkpoint").write_text("0\n2\nt 0 99\nu 0 3\n")
    return root


def test_a_defect_of_the_first_implementation_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = options("checkpoints")
    root = made(tmp_path / "good")
    plan = make_plan(str(root), chosen)
    assert apply(plan, chosen).exit_code == ExitCode.DONE
    assert verify_plan(plan, chosen).problems == ()
    real = checkpoints._mended

    def low(*given: object) -> object:
        entry = real(*given)  # type: ignore[arg-type]
        return entry and entry._replace(offset=entry.offset - 1)

    monkeypatch.setattr(checkpoints, "_mended", low)
    root = made(tmp_path / "bad")
    plan = make_plan(str(root), chosen)
    applied = apply(plan, chosen)
    problems = [(one.file, one.text) for one in verify_plan(plan, chosen).problems]
    # Apply works the high watermarks out again; the recovery points are found by verify.
    name = "replication-offset-checkpoint"
    assert [one.change_id for one in applied.results if one.outcome == "failed"] == [f"./{name}"]
    assert [text for file, text in problems if file == "recovery-point-offset-checkpoint"] == [
        "t-0 at 4: the original has 5",
        "u-0 at 4: the original has 5",
    ]


def test_random_changes_of_a_right_file_are_found() -> None:
    rng = random.Random(1)
    kind = KINDS[1]
    old = bytes_of(["a 0 99", "a 1 4", "b 0 0", "b 1 5"], 4, "\n")
    right = mend_offsets(kind, old, ENDS).data
    told = 0
    for _ in range(200):
        wrong = bytearray(right)
        wrong[rng.randrange(len(wrong))] = rng.choice(b"0123456789ab \n")
        if decode_offsets(bytes(wrong)) != decode_offsets(right):
            assert checkpoint_problems(kind.name, old, bytes(wrong), TOLD) != []
            told += 1
    assert told > 100
