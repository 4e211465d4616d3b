"""What changed between two plans of one directory."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from krepair.cli.main import app
from krepair.cli.views.comparisons import diff_view
from krepair.cli.views.writers import plain
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, StalePlanError, UsageError
from krepair.ops.diff import diff_plans, format_of_field, words
from krepair.plan.commands import check_digest
from krepair.plan.model import Plan, RewriteSegments
from krepair.plan.planfile import seal
from tests.ops.conftest import memory_dir
from tests.ops.scene import TV2, Scene, scene
from tests.plan.plans import good_plan, write_plan
from tools.docs import DOCS

__all__ = ["memory_dir"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, Plan]:
    one = scene(tmp_path_factory.mktemp("diff"), TV2)
    return one, one.plan()


def test_a_plan_made_again_is_the_same(made: tuple[Scene, Plan]) -> None:
    one, plan = made
    found = diff_plans(plan, one.plan())
    assert found.same
    assert found.same_partitions == len(plan.partitions)
    assert "The plans are the same." in plain(diff_view(found, "a", "b"))


def test_another_clock_alone_is_told_and_all_decisions_are_the_same(made: tuple[Scene, Plan]) -> None:
    _, plan = made
    other = seal(replace(plan, policy=replace(plan.policy, now_ms=plan.policy.now_ms + 1)))
    found = diff_plans(plan, other)
    assert not found.same
    assert [(one.what, one.first, one.second) for one in found.differences] == [
        ("now_ms", str(plan.policy.now_ms), str(plan.policy.now_ms + 1))
    ]
    assert found.partitions == ()
    assert "Both plans make the same changes in every partition." in plain(diff_view(found, "a", "b"))


def test_another_horizon_decides_otherwise_and_names_what_each_source_loses(made: tuple[Scene, Plan]) -> None:
    one, plan = made
    later = one.plan(delete_horizon="next-pass")
    found = diff_plans(plan, later)
    decided = [part for part in found.partitions if not part.decisions_same]
    assert decided
    changed = {change.change_id for part in plan.partitions for change in part.changes} ^ {
        change.change_id for part in later.partitions for change in part.changes
    }
    told = {
        change.change_id for part in found.partitions for change in part.changes if change.where != "both"
    }
    assert told == changed
    assert any(one.what == "horizon" for one in found.differences)


def test_a_file_that_grew_is_told_and_leaves_the_decisions_the_same(made: tuple[Scene, Plan]) -> None:
    _, plan = made
    first = next(part for part in plan.partitions if part.changes)
    grown = replace(first.files[-1], size=first.files[-1].size + 7)
    found = diff_plans(plan, with_other(plan, first.folder, files=(*first.files[:-1], grown)))
    (only,) = found.partitions
    assert (only.folder, only.decisions_same, only.changes) == (first.folder, True, ())
    assert [one.what for one in only.differences] == [f"files.{grown.name}.size"]
    assert (found.same_partitions, found.same_decisions) == (len(plan.partitions) - 1, 1)


def with_other(plan: Plan, folder: str, **fields: object) -> Plan:
    """The plan with other values in one of its partitions."""
    parts = tuple(replace(part, **fields) if part.folder == folder else part for part in plan.partitions)
    return seal(replace(plan, partitions=parts))


def test_partitions_that_differ_only_in_what_was_seen_or_noted_are_told_apart_from_those_with_other_figures(
    made: tuple[Scene, Plan],
) -> None:
    _, plan = made
    first, second, third, *_ = (part for part in plan.partitions if part.changes)
    noted = with_other(plan, first.folder, notes=("another note",), high_watermark=first.high_watermark + 1)
    found = diff_plans(plan, noted)
    (only,) = found.partitions
    assert (only.decisions_same, only.only_seen) == (True, True)
    page = plain(diff_view(found, "a", "b"))
    total = len(plan.partitions)
    assert "Both plans make the same changes in every partition." in page
    assert (
        f"Of the {total}: {total - 1} are the same in every field of the plan; 1 differs only in notes"
        in page
    )
    row = next(line for line in page.splitlines() if first.folder in line)
    assert row.split()[1:3] == ["the", "same"]
    assert "notes" in row
    assert "high watermark: " in row

    dearer = with_other(noted, second.folder, peak_extra_bytes=second.peak_extra_bytes + 1)
    found = diff_plans(plan, with_other(dearer, third.folder, changes=()))
    assert [(one.decisions_same, one.only_seen) for one in found.partitions] == [
        (True, True),
        (True, False),
        (False, False),
    ]
    page = plain(diff_view(found, "a", "b"))
    assert f"the same changes in {total - 1} of {total} partitions; 1 differs" in page
    assert "1 differs in figures" in page


def test_one_more_batch_that_goes_is_another_decision(
    made: tuple[Scene, Plan],
) -> None:
    _, plan = made
    first = next(part for part in plan.partitions if part.changes)
    change = first.changes[0]
    assert isinstance(change, RewriteSegments)

    source = replace(change.sources[0], decisions="0" * 16)
    other = replace(change, sources=(source, *change.sources[1:]))
    decided = diff_plans(plan, with_other(plan, first.folder, changes=(other, *first.changes[1:])))
    assert not decided.partitions[0].decisions_same
    (one,) = decided.partitions[0].changes[0].differences
    assert one.what == f"sources.{source.base_offset}.decisions"


def test_a_partition_of_one_plan_only_is_told(made: tuple[Scene, Plan]) -> None:
    _, plan = made
    fewer = seal(replace(plan, partitions=plan.partitions[1:]))
    (gone,) = diff_plans(plan, fewer).partitions
    (come,) = diff_plans(fewer, plan).partitions
    assert (gone.folder, gone.where, come.where) == (plan.partitions[0].folder, "first", "second")
    assert "only in the first plan" in plain(diff_view(diff_plans(plan, fewer), "a", "b"))


def test_plans_of_two_directories_are_not_compared(made: tuple[Scene, Plan]) -> None:
    _, plan = made
    with pytest.raises(UsageError, match="plans of two directories"):
        diff_plans(plan, seal(replace(plan, log_dir="/elsewhere")))


def test_the_command_ends_with_0_or_2_and_prints_one_versioned_document(
    made: tuple[Scene, Plan], tmp_path: Path
) -> None:
    _, plan = made
    other = seal(replace(plan, policy=replace(plan.policy, now_ms=plan.policy.now_ms + 1)))
    for name, one in (("a", plan), ("b", other)):
        write_plan(str(tmp_path / name), one, RealDisk())
    same = CliRunner().invoke(app, ["diff", str(tmp_path / "a"), str(tmp_path / "a")])
    assert (same.exit_code, "The plans are the same." in same.stdout) == (0, True)
    document = CliRunner().invoke(app, ["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json"])
    found = json.loads(document.stdout)
    assert (document.exit_code, found["exit_code"], found["format_version"]) == (2, 2, "1.0")
    assert found["report"]["differences"][0]["what"] == "now_ms"
    assert found["report"]["second"] == other.digest


def test_only_the_expected_digest_is_let_through(made: tuple[Scene, Plan], tmp_path: Path) -> None:
    _, plan = made
    for right in (plan.digest, plan.digest[:32], plan.digest[:40].upper()):
        check_digest(plan, right, "P")
    for short in (plan.digest[:31], "", "x" * 32, plan.digest + "0"):
        with pytest.raises(UsageError, match="32 to 64 hex digits"):
            check_digest(plan, short, "P")
    with pytest.raises(StalePlanError, match="nothing was changed"):
        check_digest(plan, "0" * 32, "P")
    write_plan(str(tmp_path / "p"), plan, RealDisk())
    refused = CliRunner().invoke(app, ["apply", str(tmp_path / "p"), "--expect", "0" * 32])
    assert refused.exit_code == ExitCode.STALE_PLAN
    assert plan.digest in refused.stderr


def test_a_difference_is_told_in_words_units_and_dates_and_never_as_raw_json(
    made: tuple[Scene, Plan],
) -> None:
    one, plan = made
    later = one.plan(delete_horizon="next-pass", keep="until-verified")
    moved = seal(replace(later, policy=replace(later.policy, now_ms=later.policy.now_ms + 86_400_000)))
    page = plain(diff_view(diff_plans(plan, moved), "a", "b"))
    assert re.search(r"needed while apply runs +\S+ (bytes|KiB|MiB) +\S+ (bytes|KiB|MiB)", page)
    assert re.search(r"clock of the decisions +20\d\d-\S+Z +20\d\d-\S+Z", page)
    assert re.search(r"originals \(--keep\) +inplace +until-verified", page)
    assert not re.search(r'[{}]|": |_at_|_ms\b|_bytes\b|-\d{5}', page)
    assert not re.search(r"\b1[5-9]\d{11}\b", page)


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [
        ("freed_at_apply", -2_084_409, "2.0 MiB taken"),
        ("freed_at_purge", 1, "1 byte"),
        ("horizon_ms", 2**63 - 1, "any time"),
        ("horizon_ms", 1_699_000_000_000, "2023-11-03T08:26:40.000Z"),
        ("horizon_ms", 0, "never"),
        ("horizon", "1699000000000", "2023-11-03T08:26:40.000Z"),
        ("mtime_ns", 1_699_000_000_000_000_000, "2023-11-03T08:26:40.000Z"),
        ("files.x.mtime_ns", 1_699_000_000_000_000_000, ""),
        ("sources.0.reasons.K03", {"reason": "K03", "batches": 1, "bytes": 78}, "1 batch, 78 bytes"),
        ("partitions", [["t", 0], ["t", 1], ["t", 2], ["t", 3]], "t-0, t-1, t-2 and 1 more"),
        ("partitions", [], "none"),
        ("compaction", {"records": 1, "kept": 0}, "0 of 1 record stay"),
        ("x", True, "yes"),
        ("x", None, ""),
        ("of_a_later_version", {"a_b": 1, "c": "d", "deep": {}}, "a b 1, c d"),
    ],
)
def test_values_of_a_plan_have_words(what: str, value: object, said: str) -> None:
    assert format_of_field(what.split(".")).text(value) == said


def test_every_size_and_time_of_a_plan_is_told_with_its_unit() -> None:
    schema = json.loads((DOCS / "schemas" / "plan.schema.json").read_text())
    names = {
        name
        for kind in schema["$defs"].values()
        for name, field in kind.get("properties", {}).items()
        if field.get("type") == "integer"
    }
    with_unit = {name for name in names if re.search(r"(^|_)(bytes|size|ms|ns)(_|$)|^freed_at", name)}
    assert len(with_unit) > 20
    assert {name for name in with_unit if format_of_field((name,)).words is words} == set()


def test_two_figures_that_look_the_same_are_told_in_full(made: tuple[Scene, Plan]) -> None:
    _, plan = made
    other = seal(replace(plan, peak_extra_bytes=plan.peak_extra_bytes + 1))
    (only,) = diff_plans(plan, other).differences
    assert only.label == "needed while apply runs"
    assert (only.before, only.after) == (f"{plan.peak_extra_bytes:,}", f"{plan.peak_extra_bytes + 1:,}")


def test_plans_of_an_earlier_version_which_lack_a_field_are_compared() -> None:
    first = good_plan()
    assert diff_plans(first, first).same


def test_an_option_that_differs_is_told_once() -> None:
    words = ("--keep", "until-verified", "--topic", "t")
    first = good_plan()
    second = replace(good_plan(keep="until-verified"), asked=words)
    told = [one.what for one in diff_plans(first, second).differences if not one.what.startswith("risks.")]
    assert told == ["freed_at_apply", "asked.topics", "keep"]
