"""Every end of a run has its exit code, its message and, for programs, its document."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

import krepair.ops
from krepair import errors
from krepair.checks.catalogue import Finding
from krepair.cli.main import app
from krepair.commit.reports import ApplyReport
from krepair.commit.result import ChangeResult
from krepair.engine.progress import Progress
from krepair.findings.reports import CheckReport, LogDirReport
from krepair.next_command import Next
from krepair.ops.verify import CheckedFiles, Problem, VerifyReport
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from krepair.plan.planfile import dumps, read_plan, seal
from krepair.plan.view import PARTS
from krepair.start.line import ForecastLine
from tests.cli.reported import summary
from tests.plan.plans import good_plan, left_alone, nothing

VERBS = ("check", "plan", "show", "apply", "verify", "undo", "purge", "explain")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


class Fakes:
    """Verbs that hand back what a test wants, and remember what they were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.calls: list[tuple[Any, Options]] = []

    def set(self, verb: str, answer: Any, function: str = "") -> None:
        """Make a verb give ``answer``, or raise it when it is an exception."""

        def fake(target: Any, options: Options, progress: Progress, **_more: Any) -> Any:
            progress.start("scan", 10)
            progress.advance(10)
            progress.finish()
            self.calls.append((target, options))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        module = ModuleType(f"krepair.ops.{verb}")
        setattr(module, function or verb, fake)
        self.monkeypatch.setitem(sys.modules, module.__name__, module)
        self.monkeypatch.setattr(krepair.ops, verb, module, raising=False)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return Fakes(monkeypatch)


@pytest.fixture
def plan_path(tmp_path: Path) -> str:
    path = tmp_path / "p.krplan"
    path.write_bytes(dumps(good_plan()))
    return str(path)


CLEAN = CheckReport(
    log_dirs=(LogDirReport(log_dir="/data"),),
    engine="inline: small",
    next_command=Next.read("krepair plan /data"),
)
FINDING = Finding(
    rule="KR302", partition="t-1", file="00.log", position=7, evidence="CRC 1, expected 2", bytes=9
)
FULL = CheckReport(
    log_dirs=(
        LogDirReport(
            log_dir="/data",
            findings=(FINDING,),
            partitions=(summary("t-1"),),
            forecast=(ForecastLine(partition="t-1", expected="truncate", text="bad CRC", bytes_read=5),),
            uncleanable_partitions=1,
            uncleanable_bytes=1000,
            start_needs_bytes=20_971_520,
        ),
    )
)


def test_check_of_a_sound_directory_ends_with_0_and_the_next_command(fakes: Fakes):
    fakes.set("check", CLEAN)
    result = run("check", "/data", "/data2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Nothing found." in result.stdout
    assert result.stdout.endswith("  krepair plan /data\n")
    assert fakes.calls[0][0] == ["/data", "/data2"]


def test_check_says_which_rules_it_does_not_look_for(fakes: Fakes):
    fakes.set("check", CLEAN)
    said = run("check", "/data").stdout
    assert "krepair check --deep (KR307); krepair groups (KR609); krepair compare" in said


def test_findings_end_with_2_and_are_shown_with_place_and_forecast(fakes: Fakes):
    fakes.set("check", FULL)
    result = run("check", "/data")
    assert result.exit_code == 2
    for words in ("KR302", "t-1", "truncate", "Uncleanable (KIP-346): 1", "20.0 MiB"):
        assert words in result.stdout, words
    result = run("check", "/data", "--all")
    for words in ("KR302", "00.log at 7", "CRC 1, expected 2", "truncate", "45%"):
        assert words in result.stdout, words


def test_a_rule_that_is_not_known_is_wrong_use(fakes: Fakes):
    fakes.set("check", FULL)
    result = run("check", "/data", "--rule", "KR999")
    assert (result.exit_code, "next: krepair explain" in result.stderr) == (64, True)
    assert "CRC 1, expected 2" in run("check", "/data", "--rule", "kr302").stdout


def test_quiet_prints_nothing_and_keeps_the_exit_code(fakes: Fakes):
    fakes.set("check", FULL)
    result = run("check", "/data", "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "")


def test_json_is_one_versioned_document(fakes: Fakes):
    fakes.set("check", FULL)
    result = run("check", "/data", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["exit_code"], document["code"]) == (2, 2, "FOUND")
    assert (document["verb"], document["format_version"]) == ("check", "1.0")
    assert document["report"] == msgspec.to_builtins(FULL, str_keys=True, enc_hook=str) | {
        "log_dirs": document["report"]["log_dirs"],
        "left_out": [],
    }
    assert document["report"]["log_dirs"][0]["findings"][0]["rule"] == "KR302"


def test_names_that_are_not_utf8_pass_through_text_and_json(fakes: Fakes):
    hostile = Finding(rule="KR602", file="x\udcff\x1b[2J\n", evidence="e")
    fakes.set("check", CheckReport(log_dirs=(LogDirReport(log_dir="/d", findings=(hostile,)),)))
    assert json.loads(run("check", "/d", "--json").stdout)["report"]["log_dirs"][0]["findings"][0][
        "file"
    ] == ("x\\udcff\x1b[2J\n")
    assert "x\\udcff\\x1b[2J\\n" in run("check", "/d", "--all").stdout


def test_options_come_to_the_verb_typed(fakes: Fakes):
    fakes.set("plan", good_plan(), "make_plan")
    typed = (
        "plan /data --now 2026-11-21T13:00:00+01:00 --delete-horizon 1700000000000 --no-merge --keep inplace "
        "--config server.properties --topic-config topics.json --set delete.retention.ms=5 "
        "--set segment.bytes=7 --topic a --partition my-topic-3 --broker-version 3.9.2 --engine inline "
        "--master local[2] --fix markers --assume-high-watermark log-end"
    )
    run(*typed.split())
    assert fakes.calls == [
        (
            "/data",
            Options(
                config="server.properties",
                topic_config="topics.json",
                settings=(("delete.retention.ms", "5"), ("segment.bytes", "7")),
                now_ms=1795262400000,
                delete_horizon="1700000000000",
                broker_version="3.9.2",
                topics=("a",),
                partitions=(("my-topic", 3),),
                fixes=("markers",),
                keep="inplace",
                merge=False,
                assume_high_watermark="log-end",
                engine=EngineName.INLINE,
                master="local[2]",
            ),
        )
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("bogus",),
        ("check",),
        ("check", "/d", "--no-such-option"),
        ("plan", "/a", "/b"),
        ("plan", "/d", "--fix", "compat"),
        ("plan", "/d", "--fix", "bogus"),
        ("plan", "/d", "--fix", ","),
        ("plan", "/d", "--keep", "none"),
        ("plan", "/d", "--keep", "/backup"),
        ("plan", "/d", "--delete-horizon", "soon"),
        ("plan", "/d", "--now", "yesterday"),
        ("plan", "/d", "--now", "-1"),
        ("plan", "/d", "--now", "9" * 500),
        ("plan", "/d", "--partition", "topic"),
        ("plan", "/d", "--partition", "t-99999999999"),
        ("plan", "/d", "--set", "novalue"),
        ("plan", "/d", "--engine", "gpu"),
        ("plan", "/d", "--broker-version", "new"),
        ("plan", "/d", "--assume-high-watermark", "7"),
        ("show", "/no/such/plan"),
        ("apply", "/no/such/plan"),
        ("explain", "KR999"),
    ],
)
def test_wrong_use_ends_with_64_one_line_and_the_next_command(arguments: tuple[str, ...]):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (64, "")
    assert result.stderr.startswith("krepair: ")
    assert "\nnext: krepair " in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_name_of_a_fix_is_answered_with_the_names_there_are():
    refused = run("plan", "/d", "--fix", "marker")
    assert refused.exit_code == errors.ExitCode.USAGE
    assert "unknown; the names are checkpoints, compact, epochs, index" in refused.stderr
    assert refused.stderr.endswith("; did you mean markers?\nnext: krepair plan --help\n")


ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.KrepairError) and kind is not errors.KrepairError
]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_each_error_ends_with_its_own_code_message_and_next_command(
    fakes: Fakes, kind: type[errors.KrepairError]
):
    fakes.set("check", kind("the lock is held by 4711", next_command=Next.read("krepair check /d")))
    result = run("check", "/d/t-0")
    assert (result.exit_code, result.stdout) == (int(kind.exit_code), "")
    assert result.stderr == "krepair: the lock is held by 4711\nnext: krepair check /d\n"
    document = json.loads(run("check", "/d/t-0", "--json").stdout)
    assert (document["exit_code"], document["code"]) == (int(kind.exit_code), kind.exit_code.name)
    assert document["error"] == {"message": "the lock is held by 4711", "next_command": "krepair check /d"}


def test_a_bug_ends_with_1_in_one_line_and_shows_where_only_when_asked(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
):
    fakes.set("check", ZeroDivisionError("division\nby zero"))
    monkeypatch.delenv("KREPAIR_DEBUG", raising=False)
    result = run("check", "/d")
    assert result.exit_code == 1
    assert "please report it: ZeroDivisionError: division by zero\n" in result.stderr
    assert "Traceback" not in result.stderr
    monkeypatch.setenv("KREPAIR_DEBUG", "1")
    assert "Traceback" in run("check", "/d").stderr


@pytest.mark.parametrize(
    ("error", "says", "advice"),
    [
        (
            MemoryError("Unable to allocate 1.00 MiB"),
            "not enough memory: Unable to allocate 1.00 MiB",
            "next: free memory, or raise the limit of this process (ulimit -v)",
        ),
        (
            OSError(errno.EIO, "Input/output error", "/data/t-0/x.log"),
            "krepair: /data/t-0/x.log: the operating system says: Input/output error (EIO)",
            "",
        ),
    ],
    ids=["too little memory", "the operating system refuses"],
)
@pytest.mark.parametrize(
    ("verb", "code"), [("check", 15), ("plan", 15), ("apply", 3), ("undo", 3), ("purge", 3)]
)
def test_what_the_host_does_not_give_is_no_bug_and_says_what_it_is(
    fakes: Fakes, plan_path: str, verb: str, code: int, error: Exception, says: str, advice: str
):
    fakes.set(verb, error, "make_plan" if verb == "plan" else "")
    result = run(verb, plan_path if code == 3 else "/data")
    assert result.exit_code == code
    assert says in result.stderr
    assert advice in result.stderr
    assert ("it may be half done" in result.stderr) == (code == 3)


def test_plan_is_written_shown_and_ends_with_2(fakes: Fakes, tmp_path: Path):
    fakes.set("plan", good_plan(), "make_plan")
    out = tmp_path / "new.krplan"
    result = run("plan", "/data", "--out", str(out))
    assert (result.exit_code, result.stderr) == (2, "")
    assert read_plan(str(out)) == good_plan()
    assert f"krepair apply {out}" in result.stdout


def test_a_plan_for_nothing_ends_with_0(fakes: Fakes):
    fakes.set("plan", good_plan(nothing()), "make_plan")
    result = run("plan", "/data")
    assert result.exit_code == 0
    assert "This plan changes nothing." in result.stdout


def test_a_plan_that_leaves_damage_alone_ends_with_2(fakes: Fakes):
    fakes.set("plan", good_plan(left_alone()), "make_plan")
    assert run("plan", "/data").exit_code == 2


def test_plan_refuses_to_write_into_the_log_directory(fakes: Fakes, tmp_path: Path):
    plan = seal(msgspec.structs.replace(good_plan(), log_dir=str(tmp_path)))
    fakes.set("plan", plan, "make_plan")
    assert run("plan", str(tmp_path), "--out", str(tmp_path / "p")).exit_code == 13
    assert (list(tmp_path.iterdir()), fakes.calls) == ([], [])


def test_show_gives_the_same_plan_in_each_format(plan_path: str):
    assert run("show", plan_path, "--format", "json").stdout.encode() == dumps(good_plan())
    assert run("show", plan_path, "--format", "md").stdout.startswith("# Plan ")
    assert json.loads(run("show", plan_path, "--json").stdout)["report"]["plan_id"] == good_plan().plan_id
    assert "free after purge" in run("show", plan_path).stdout
    for part in PARTS:
        one = run("show", plan_path, "--section", part).stdout
        assert one.count("--section") == 1
        assert f"(--section {part})" in one
    assert run("show", plan_path, "--section", "all").exit_code == 64
    assert run("show", plan_path, "--section", "risks", "--format", "html").exit_code == 64
    assert run("show", plan_path, "--format", "pdf").exit_code == 64


def wrongly_built() -> Plan:
    plan = good_plan()
    return seal(msgspec.structs.replace(plan, policy=msgspec.structs.replace(plan.policy, keep="somewhere")))


def test_show_shows_what_the_review_has_against_a_plan(tmp_path: Path):
    path = tmp_path / "p"
    path.write_bytes(dumps(wrongly_built()))
    result = run("show", str(path))
    assert result.exit_code == 0
    assert "The review objects: apply will refuse this plan" in result.stdout
    assert "RV05" in result.stdout


@pytest.mark.parametrize("verb", ["apply", "undo", "purge", "verify"])
def test_a_wrongly_built_plan_is_refused_before_anything_is_looked_at(tmp_path: Path, verb: str):
    path = tmp_path / "p"
    path.write_bytes(dumps(wrongly_built()))
    result = run(verb, str(path))
    assert (result.exit_code, result.stdout) == (13, "")
    assert "the review of the plan objects (RV05)" in result.stderr


@pytest.mark.parametrize("verb", ["apply", "undo", "purge", "show", "verify"])
def test_an_edited_plan_is_stale(fakes: Fakes, tmp_path: Path, verb: str):
    if verb != "show":
        fakes.set(verb, AssertionError("must not be called"), "verify_plan" if verb == "verify" else "")
    path = tmp_path / "p"
    path.write_bytes(dumps(good_plan()).replace(b'"broker-1"', b'"broker-2"'))
    assert run(verb, str(path)).exit_code == 12


def result_of(outcome: Any, code: int = 0, freed: int = 0) -> ChangeResult:
    why = "0.log at 5 changed" if code else ""
    return ChangeResult(
        change_id="t-1/0", partition="t-1", outcome=outcome, exit_code=code, why=why, bytes_freed=freed
    )


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ((), 0),
        ((result_of("committed", 0, 5), result_of("already")), 0),
        ((result_of("committed"), result_of("failed", 12)), 3),
        ((result_of("failed", 12), result_of("skipped", 12)), 12),
        ((result_of("failed", 12), result_of("failed", 14)), 13),
        ((result_of("failed", 99),), 1),
    ],
)
@pytest.mark.parametrize("verb", ["apply", "undo", "purge"])
def test_results_of_changes_make_the_exit_code(
    fakes: Fakes, plan_path: str, verb: Any, results: tuple[ChangeResult, ...], code: int
):
    fakes.set(
        verb,
        ApplyReport(
            verb=verb, plan_id="abc", log_dir="/d", results=results, next_command=Next.read("krepair x")
        ),
    )
    result = run(verb, plan_path)
    assert result.exit_code == code
    assert ("0.log at 5 changed" in result.stdout) is (code != 0)
    assert fakes.calls[0][0] == good_plan()
    assert result.stdout.endswith("  krepair x\n")


def test_the_next_plan_has_the_options_that_the_check_was_told(fakes: Fakes):
    fakes.set(
        "check",
        CheckReport(
            log_dirs=(LogDirReport(log_dir="/d"),),
            engine="inline",
            next_command=Next.read("krepair plan /d --fix index --broker-version 3.9.2 --out PLAN"),
        ),
    )
    typed = ["--topic-config", "my topics.json", "--set", "delete.retention.ms=1", "--partition", "a-0"]
    result = run("check", "/d", *typed, "--broker-version", "2.2.1")
    assert result.exit_code == 0
    assert result.stdout.rstrip().splitlines()[-1].strip() == (
        "krepair plan /d --fix index --broker-version 3.9.2 --topic-config 'my topics.json' "
        "--set delete.retention.ms=1 --partition a-0 --out PLAN"
    )


def test_next_commands_name_the_files_that_were_typed_and_what_the_plan_was_made_with(
    fakes: Fakes, plan_path: str
):
    fakes.set(
        "apply",
        ApplyReport(verb="apply", plan_id="abc", log_dir="/d", next_command=Next.read("krepair verify PLAN")),
    )
    assert run("apply", plan_path).stdout.endswith(f"  krepair verify {plan_path}\n")
    fakes.set("apply", errors.StalePlanError("x", next_command=Next.read("krepair plan LOGDIR --out PLAN")))
    assert run("apply", plan_path).stderr.endswith(
        "next: krepair plan /data/kafka --broker-version 2.2.1 --out PLAN\n"
    )


def test_an_interrupted_apply_ends_with_16(fakes: Fakes, plan_path: str):
    fakes.set("apply", ApplyReport(verb="apply", plan_id="abc", log_dir="/d", interrupted=True))
    assert run("apply", plan_path).exit_code == 16


def test_verify_tells_a_directory_from_a_plan(fakes: Fakes, tmp_path: Path, plan_path: str):
    problem = Problem(partition="t-1", file="0.log", position=61, text="CRC 1, expected 2")
    fakes.set("verify", VerifyReport(target="/d", problems=(problem,)), "verify_log_dir")
    result = run("verify", str(tmp_path))
    assert result.exit_code == 2
    assert "0.log at 61" in result.stdout
    checked = CheckedFiles(what="indexes", files=1, how="its entries against the log")
    fakes.set("verify", VerifyReport(target="/d", plan_id="abc", checked=(checked,)), "verify_plan")
    result = run("verify", plan_path)
    assert result.exit_code == 0
    assert "Everything is as it should be." in result.stdout


@pytest.mark.parametrize("code", ["KR101", "kr201", "D03", "RV25"])
def test_explain_knows_rules_reasons_and_objections(code: str):
    result = run("explain", code)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{code.upper()}: ")
    assert json.loads(run("explain", code, "--json").stdout)["report"]["code"] == code.upper()


def test_explain_says_of_a_code_that_is_gone_what_stands_in_its_place():
    result = run("explain", "kr670")
    assert result.exit_code == errors.ExitCode.USAGE
    assert "KR670 is gone: krepair no longer looks for it. krepair compare names" in result.stderr


def test_explain_says_by_what_a_rule_is_looked_for():
    assert "by krepair groups" in run("explain", "KR609").stdout
    assert "by krepair check" in run("explain", "KR101").stdout


def test_explain_alone_lists_every_code_and_every_exit_code():
    text = run("explain").stdout
    for words in ("KR101", "KR803", "K01", "RV25", "NOT_A_LOG_DIR"):
        assert words in text


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "krepair", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_names_survive_a_terminal_that_knows_only_ascii(tmp_path: Path):
    path = tmp_path / "p"
    path.write_bytes(dumps(good_plan(left_alone(folder="t\u00e9-1"))))
    ended = process("show", str(path), PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "t\\xe9-1" in ended.stdout


def test_an_interrupted_run_is_no_error_of_krepair_in_json(fakes: Fakes):
    fakes.set("check", KeyboardInterrupt())
    ended = run("check", "/d", "--json")
    told = json.loads(ended.stdout)
    assert (ended.exit_code, told["exit_code"], told["code"]) == (130, 130, "INTERRUPTED")
    assert "error of krepair" not in told["meaning"]


def test_ctrl_c_while_python_still_imports_ends_as_a_later_one():
    script = (
        "import importlib.metadata, os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background ignores it
        "sys.argv = ['krepair', 'explain', '--json']\n"
        "command, = importlib.metadata.entry_points(group='console_scripts', name='krepair')\n"
        "command.load()()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, json.loads(ended.stdout or "{}").get("code")) == (130, "INTERRUPTED")
    assert ended.stderr == "krepair: interrupted\nnext: run the same command again\n"
