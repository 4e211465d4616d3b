"""Screens of the verbs, stored as text of 80 columns; KREPAIR_WRITE_SCREENS=1 writes them again.

``check``, ``verify``, ``apply``, ``undo`` and ``purge`` fit 24 lines for any number of partitions, and 12 where all
went well. A plan, which answers seven questions, fits ``ROWS``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, Literal

import pytest
from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.cli.views.check import check_view
from krepair.cli.views.comparisons import compare_view, diff_view, facts_view
from krepair.cli.views.coordinators import groups_view, transactions_view
from krepair.cli.views.reports import apply_view, verify_view
from krepair.cli.views.writers import COLUMNS, markdown, on_screen, plain
from krepair.commit.reports import ApplyReport
from krepair.commit.result import ChangeOutcome, ChangeResult
from krepair.findings.reports import CheckReport, LogDirReport
from krepair.look.coordinators.groups import Group, OffsetCommit
from krepair.next_command import NOTHING, Next
from krepair.ops.compare import CompareReport, SideSummary
from krepair.ops.diff import diff_plans
from krepair.ops.dump import Dump
from krepair.ops.explain import explained, row
from krepair.ops.facts import FactsReport
from krepair.ops.groups import GroupsReport
from krepair.ops.show import show_view
from krepair.ops.transactions import OpenInLog, TransactionsReport
from krepair.ops.verify import CheckedFiles, Problem, VerifyReport
from krepair.options import Options
from krepair.plan.planfile import seal
from krepair.plan.short import ROWS
from krepair.plan.view import View, unbroken
from krepair.rules.replicas import model as m
from krepair.start.line import ForecastLine
from tests.cli.reported import column, summary
from tests.fixture_dirs import unpack
from tests.hostile.verbs import run
from tests.plan.plans import good_plan, numbered

SCREENS = Path(__file__).parent / "screens"
COUNTS = (1, 60, 2000)
CLOCK_MS = 1_750_000_000_000


def checked(count: int) -> View:
    folders = [f"__consumer_offsets-{number}" for number in range(count)]
    log_dir = LogDirReport(
        log_dir="/var/lib/kafka",
        findings=(
            Finding(rule="KR302", partition=folders[0], file="x.log", position=7, evidence="CRC", bytes=317),
            *(Finding(rule="KR101", partition=name, evidence="markers", bytes=541_436) for name in folders),
        ),
        partitions=tuple(
            summary(
                name,
                segments=9,
                log_bytes=1_308_238,
                batches=17_899,
                markers=17_000,
                marker_bytes=1_300_000,
                emptied=0,
                emptied_bytes=0,
                log_end_offset=28_234,
            )
            for name in folders
        ),
        forecast=tuple(
            ForecastLine(partition=name, expected="recover", text="read", bytes_read=1_308_238, seconds=0.5)
            for name in folders
        ),
        scanned_bytes=1_308_238 * count,
        start_needs_bytes=20_971_520,
        free_bytes=0,
    )
    command = Next.read("krepair plan /var/lib/kafka --fix markers,tail --out PLAN")
    return check_view(CheckReport(log_dirs=(log_dir,), next_command=command), Options(), 80)


def all_right(count: int) -> View:
    """A plan with every kind of file that one run can check."""
    kinds = (
        ("new segments", "every batch, every entry of its indexes, and the plan's counts"),
        ("repaired logs", "every batch, its indexes, and the plan's size and digest"),
        ("transaction indexes", "its entries against a replay of the logs"),
        ("leader epoch checkpoints", "size and digest against the plan, decoded and encoded again"),
        ("producer snapshots", "size and digest against the plan, decoded and encoded again"),
    )
    return verify_view(
        VerifyReport(
            target="/var/lib/kafka",
            plan_id="32ae8eb2",
            partitions=count,
            segments=count,
            batches=838 * count,
            bytes_read=66_836 * count,
            engine="inline: less than 1 s of work",
            next_command=Next.read("krepair purge offsets.krplan   # when the brokers are well"),
            checked=tuple(CheckedFiles(what=what, files=count, how=how) for what, how in kinds),
        )
    )


def verified(count: int) -> View:
    problem = Problem(partition="__consumer_offsets-0", file="0.log", position=7, text="CRC 1, expected 2")
    return verify_view(
        VerifyReport(
            target="/var/lib/kafka",
            problems=(problem,),
            partitions=count,
            segments=count,
            batches=count,
            bytes_read=count,
            next_command=Next.read("krepair check /var/lib/kafka"),
        )
    )


def carried_out(verb: Literal["apply", "undo", "purge"], count: int, *, well: bool = False) -> View:
    """All went well but for the last partition of several."""
    done: dict[str, ChangeOutcome] = {"apply": "committed", "undo": "undone", "purge": "purged"}
    results = [
        ChangeResult(
            change_id=f"__consumer_offsets-{number}/{0:020d}",
            partition=f"__consumer_offsets-{number}",
            outcome=done[verb],
            bytes_freed=541_436,
        )
        for number in range(count)
    ]
    if count > 1 and not well:
        why = "00000000000000000000.log: 1308238 bytes, expected 1308200; it was changed after the plan was made"
        results[-1] = replace(results[-1], outcome="failed", exit_code=12, why=why, bytes_freed=0)
    return apply_view(
        ApplyReport(
            verb=verb,
            plan_id="32ae8eb2",
            log_dir="/var/lib/kafka",
            results=tuple(results),
            engine="inline: less than 1 s of work",
            next_command=Next.read("krepair verify offsets.krplan"),
            digest="3" * 64,
        )
    )


def planned(count: int) -> View:
    return shown(count).short


def shown(count: int) -> View:
    return show_view(good_plan(*map(numbered, range(count))), "offsets.krplan")


def differing(count: int) -> View:
    """The same partitions by a later clock, and freed as soon as all is verified."""
    first = good_plan(*map(numbered, range(count)))
    dearer = tuple(replace(one, peak_extra_bytes=one.peak_extra_bytes + 4096) for one in first.partitions)
    policy = replace(first.policy, now_ms=first.policy.now_ms + 60_000, keep="until-verified")
    return diff_view(
        diff_plans(first, seal(replace(first, partitions=dearer, policy=policy))),
        "first.krplan",
        "second.krplan",
    )


def compared(count: int) -> View:
    """One partition missed a tombstone on broker 3; the others are healthy, some behind."""
    sides = tuple(
        SideSummary(
            broker=broker,
            broker_id=str(broker),
            cluster_id="c9Xv2mTgQ8Wn1Ld5Rk7Zyw",
            host=f"kafka-{broker}.example",
            taken_ms=CLOCK_MS,
            log_dirs=(f"/mnt/b{broker}/kafka",),
            partitions=count,
        )
        for broker in (1, 2, 3)
    )
    verdicts = tuple(_side_by_side(number) for number in range(count))
    counts = {name: sum(one.verdict == name for one in verdicts) for name in m.VERDICTS}
    return compare_view(
        CompareReport(
            sides=sides,
            counts={name: number for name, number in counts.items() if number},
            partitions=verdicts,
            bytes_read=1_308_238 * count * 3,
            keys_compared=True,
            engine="inline: less than 1 s of work",
            next_command=Next.read("krepair explain KR650"),
        )
    )


def _side_by_side(number: int) -> m.PartitionVerdict:
    ends = (28_234, 28_234, 28_234 - 100 * (number % 3))
    columns = tuple(
        column(
            broker,
            end,
            log_bytes=1_308_238,
            segments=9,
            state="wrong" if not number and broker == 3 else "behind" if end < ends[0] else m.AS_IT_SHOULD_BE,
        )
        for broker, end in zip((1, 2, 3), ends, strict=True)
    )
    verdict = m.DIVERGED if not number else m.IS_BEHIND if number % 3 else m.BYTE_EQUAL
    missed = m.Disagreement(
        kind=m.TOMBSTONE_MISSED,
        rule=m.RULE_OF[m.TOMBSTONE_MISSED],
        brokers=(3,),
        right=(1, 2),
        offset=57,
        text="broker 3 has 1 key whose tombstone it never got, while another replica removed them: as leader it serves "
        "deleted keys again",
        keys=(m.KeyLine(offset=57, key="customer-4711", have=(3,), lack=(1, 2)),),
    )
    return m.PartitionVerdict(
        topic="customers",
        partition=number,
        verdict=verdict,
        disagreements=(missed,) if verdict == m.DIVERGED else (),
        right=(1, 2) if verdict == m.DIVERGED else (),
        replicas=columns,
        next_command=Next.read("krepair explain KR650") if verdict == m.DIVERGED else NOTHING,
    )


def of_facts(count: int) -> View:
    return facts_view(
        FactsReport(
            path="/mnt/b3.facts",
            digest="4" * 64,
            broker_id="3",
            cluster_id="c9Xv2mTgQ8Wn1Ld5Rk7Zyw",
            host="kafka-3.example",
            taken_ms=CLOCK_MS,
            partitions=count,
            log_bytes=1_308_238 * count,
            file_bytes=20_930 * count,
            not_read=("/mnt/b3/kafka2",),
            failed=("customers-7: 00000000000000000000.log, position 0: the checksum is wrong",),
            engine="inline: less than 1 s of work",
            next_command=Next.read("krepair compare 1=LOGDIR 3=/mnt/b3.facts"),
        )
    )


def grouped(count: int) -> View:
    groups = tuple(
        Group(
            group=f"billing-service-{number}",
            partition=f"__consumer_offsets-{number % 50}",
            kind="classic",
            state="Stable" if number % 2 else "Empty",
            generation=number,
            protocol_type="consumer",
            protocol="range",
            commits=(
                OffsetCommit(
                    topic="customers", partition=0, offset=28_234, commit_timestamp=CLOCK_MS - 60_000
                ),
            ),
            commit_records=17,
            tombstones=number % 3,
        )
        for number in range(count)
    )
    return groups_view(
        GroupsReport(
            log_dir="/var/lib/kafka",
            now_ms=CLOCK_MS,
            partitions=tuple(f"__consumer_offsets-{number}" for number in range(min(count, 50))),
            groups=groups,
            bytes_read=1_308_238 * count,
            engine="inline: less than 1 s of work",
        ),
    )


def hanging(count: int) -> View:
    """Transactions of one producer for each partition, over for the coordinator, open in the log."""
    rows = tuple(
        OpenInLog(
            partition=f"customers-{number}",
            first_offset=4_711 + number,
            producer_id=4000 + number,
            producer_epoch=0,
            coordinator_epoch=0,
            transactional_id=f"billing-{number}",
            state="CompleteCommit",
            at_least_ms=3_600_000,
            at_most_ms=-1,
            verdict="hangs",
            why="its transactional id has completed it",
            held_back_bytes=541_436,
            abort="kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic customers "
            f"--partition {number} --start-offset {4_711 + number}",
        )
        for number in range(count)
    )
    return transactions_view(
        TransactionsReport(
            log_dir="/var/lib/kafka",
            last_write_ms=CLOCK_MS,
            partitions=("__transaction_state-0",),
            states={"CompleteCommit": count},
            open=rows,
            live_commands=("kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --broker-id ID",),
            bytes_read=1_308_238 * count,
            engine="inline: less than 1 s of work",
        ),
    )


VIEWS: Final[dict[str, Callable[[int], View]]] = {
    "check": checked,
    "verify": verified,
    "apply": partial(carried_out, "apply"),
    "undo": partial(carried_out, "undo"),
    "purge": partial(carried_out, "purge"),
    "plan": planned,
    "diff": differing,
    "compare": compared,
    "facts": of_facts,
    "groups": grouped,
    "transactions": hanging,
}
WELL: Final[dict[str, Callable[[int], View]]] = {
    "verify": all_right,
    **{verb: partial(carried_out, verb, well=True) for verb in ("apply", "undo", "purge")},  # type: ignore[arg-type]
}
DIGEST: Final = re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,}\b(?!\.)")
PAGES: Final = frozenset({"diff", "compare"})
LISTS: Final = frozenset({"groups", "transactions"})
KEPT: Final = {"diff": (1, 60), **dict.fromkeys(LISTS, (1, 8))}
"""A list has a line for each thing: more of them tell no more."""


def is_whole(line: str) -> bool:
    """Whether a line is one thing that is never broken: a command, or a path; before it may stand its label."""
    return line.startswith("  k") or len(unbroken(line.rpartition("  ")[2])) == 1


def _as_kept(text: str) -> str:
    """Without digests: they change with the model of a plan, which is nothing to look at."""
    return DIGEST.sub(lambda found: "0" * len(found[0]), text)


@pytest.mark.parametrize(
    ("verb", "count"), [(verb, count) for verb in VIEWS for count in KEPT.get(verb, COUNTS)]
)
def test_the_screen_is_the_one_that_was_read_and_agreed_on(verb: str, count: int) -> None:
    view = VIEWS[verb](count)
    _is_as_kept(f"{verb}-{count}", _as_kept(on_screen(view, 80)))
    for width, rows in ((80, ROWS if verb == "plan" else 24), (100, 40)):
        lines = on_screen(view, width).splitlines()
        assert [line for line in lines if len(line) > width and not is_whole(line)] == []
        if verb not in PAGES | LISTS:
            assert len(lines) <= rows


@pytest.mark.parametrize(
    ("verb", "count"), [(verb, count) for verb in VIEWS for count in KEPT.get(verb, COUNTS)]
)
def test_no_line_is_longer_than_110_columns_where_no_terminal_is(
    monkeypatch: pytest.MonkeyPatch, verb: str, count: int
) -> None:
    monkeypatch.delenv("COLUMNS")
    assert too_long(plain(VIEWS[verb](count))) == []


@pytest.mark.parametrize("path", SCREENS.glob("[!d]*.txt"), ids=lambda path: path.stem)
def test_no_line_of_a_kept_screen_is_longer(path: Path) -> None:
    assert too_long(path.read_text()) == []


def test_no_verb_writes_a_longer_line_into_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    log_dir, plan = str(unpack("offsets-bloat-2.2.0-clean", tmp_path)), str(tmp_path / "p.krplan")
    other, facts = str(tmp_path / "q.krplan"), str(tmp_path / "b1.facts")
    for words in (
        ("check", log_dir),
        ("check", log_dir, "--all"),
        ("plan", log_dir, "--out", plan),
        ("plan", log_dir, "--keep", "until-verified", "--out", other),
        ("show", plan),
        ("show", other),
        ("diff", plan, other),
        ("apply", plan),
        ("verify", plan),
        ("undo", plan),
        ("apply", plan),
        ("undo", log_dir),
        ("purge", plan),
        ("purge", log_dir),
        ("groups", log_dir),
        ("transactions", log_dir),
        ("facts", log_dir, "--out", facts),
        ("compare", f"1={log_dir}", f"2={unpack('offsets-bloat-2.2.0-clean', tmp_path / 'b2')}"),
        ("explain",),
        ("explain", "evidence"),
        *(("explain", code) for code in ("KR101", "KR650", "D03", "RV25")),
    ):
        ran = run(*words)
        assert ran.code in {0, 2, 4, 13}, ran
        assert too_long(ran.out) == [], words


def too_long(page: str) -> list[str]:
    return [line for line in page.splitlines() if len(line) > COLUMNS and not is_whole(line)]


@pytest.mark.parametrize("verb", WELL)
def test_twelve_lines_are_enough_where_all_went_well(verb: str) -> None:
    for count, width in product(COUNTS, (80, 100)):
        shown = on_screen(WELL[verb](count), width)
        assert len(shown.splitlines()) <= 12, shown
        assert "inline" not in shown
    _is_as_kept(f"{verb}-well-60", on_screen(WELL[verb](60), 80))


def test_nothing_is_called_verified_where_no_file_was_checked() -> None:
    page = on_screen(verify_view(VerifyReport(target="/var/lib/kafka", plan_id="32ae8eb2")), 80)
    assert "No file of this plan was checked." in page
    assert "Verified" not in page


def test_the_engine_is_told_where_another_one_would_be_sooner_done() -> None:
    report = VerifyReport(target="/var/lib/kafka", engine="inline: no Java", slow_because="no Java")
    assert "no Java" in on_screen(verify_view(report), 80)


def test_a_plan_in_a_ticket_is_the_one_that_was_read_and_agreed_on() -> None:
    _is_as_kept("plan-60.md", _as_kept(markdown(shown(60))))


DUMPS: Final = {
    "batches": (("__consumer_offsets-0",), Options(batches=True, limit=3)),
    "records": (("__consumer_offsets-0",), Options(records=True, limit=3)),
    "grep": (("__consumer_offsets-0",), Options(grep="group", limit=2)),
    "root": (
        ("meta.properties", "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"),
        Options(),
    ),
    "damaged": (("nothing-here",), Options()),
}


@pytest.mark.parametrize("name", DUMPS)
def test_what_dump_prints_is_what_was_read_and_agreed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(unpack("offsets-bloat-2.2.0-clean", tmp_path))
    Path("nothing-here").mkdir()
    Path("nothing-here", "00000000000000000000.log").write_bytes(b"no batch begins like this" * 3)
    paths, options = DUMPS[name]
    _is_as_kept(f"dump-{name}", b"".join(Dump(paths, options).lines()).decode())


@pytest.mark.parametrize("code", ["KR101", "KR803", "D03", "RV25"])
def test_what_explain_prints_is_what_was_read_and_agreed_on(code: str) -> None:
    shown = on_screen(explained(row(code)), 80)
    _is_as_kept(f"explain-{code}", shown)
    assert max(map(len, shown.splitlines())) <= 80


def _is_as_kept(name: str, shown: str) -> None:
    path = SCREENS / (name if name.endswith(".md") else f"{name}.txt")
    if os.environ.get("KREPAIR_WRITE_SCREENS"):
        path.write_text(shown)
    assert shown == path.read_text()
