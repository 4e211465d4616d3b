"""The published schemas of ``--json`` match the verbs' output, field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from krepair.cli.main import app
from krepair.cli.outcome import VERBS
from krepair.cli.views.writers import report_document
from krepair.errors import ExitCode
from krepair.ops.warm import WarmReport
from tests import builders as b
from tests.fixture_dirs import unpack
from tests.meta.json_schema import SCHEMAS, Schema, faults, schema_of
from tools import schemas

CLOCK = ("--now", "2026-11-21T11:32:00Z", "--engine", "inline")


def printed(*arguments: str) -> str:
    return CliRunner().invoke(app, list(arguments)).stdout


@pytest.fixture(scope="module")
def offsets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real log directory with markers, emptied batches, groups and transactions."""
    return unpack("offsets-bloat-2.2.0-clean", tmp_path_factory.mktemp("offsets"))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small one: damage in the middle, zeros behind a time index, a file of a deletion."""
    root = tmp_path_factory.mktemp("damaged")
    directory = b.LogDir(root)
    partition = directory.partition("t", index_interval_bytes=50)
    for number in range(4):
        partition.segment(*(b.data(number * 50 + 5 * n, 5) for n in range(10)))
    directory.write(clean_stop=True)
    log = root / "t-0" / f"{50:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2 + 70] ^= 1
    log.write_bytes(data)
    index = root / "t-0" / f"{0:020d}.timeindex"
    index.write_bytes(index.read_bytes() + bytes(12 * 500))
    (root / "t-0" / f"{900:020d}.log.deleted").write_bytes(b"x")
    return root


def test_every_verb_has_a_schema():
    assert set(schemas.reports()) == set(VERBS)
    assert {path.name for path in SCHEMAS.iterdir()} == set(schemas.published())


@pytest.mark.parametrize("name", sorted(schemas.published()))
def test_every_field_of_a_schema_has_words(name: str):
    definitions = json.loads(schemas.published()[name])["$defs"]
    silent = [
        f"{struct}.{field}"
        for struct, shape in definitions.items()
        for field, kind in shape.get("properties", {}).items()
        if not kind.get("description") and not re.fullmatch(r"type|kind", field)
    ]
    assert silent == []


def test_a_plan_from_its_birth_to_its_purge_is_as_published(offsets: Path, tmp_path: Path):
    path = str(tmp_path / "p.krplan")
    about = (str(offsets), "--topic", "__consumer_offsets", "--set", "delete.retention.ms=1000", *CLOCK)
    found = {
        "check": printed("check", *about, "--json"),
        "plan": printed("plan", *about, "--out", path, "--json"),
        "show": printed("show", path, "--json"),
        "apply": printed("apply", path, "--engine", "inline", "--json"),
        "verify": printed("verify", path, "--engine", "inline", "--json"),
    }
    found["diff"] = printed("diff", path, path, "--json")
    kept = printed("undo", str(offsets), "--json")
    assert json.loads(kept)["report"]["plans"]
    check_after = printed("check", *about, "--json")
    undone = printed("undo", path, "--json")
    purged = printed("purge", path, "--json")
    assert {verb: faults(verb, text) for verb, text in found.items()} == {verb: [] for verb in found}
    assert faults("check", check_after) == []
    assert faults("undo", kept) == faults("undo", undone) == faults("purge", purged) == []
    file = json.loads(Path(path).read_text())
    assert Schema(schema_of("plan-file"), closed=True, spelled_out=False).faults(file) == []


def test_plans_of_the_other_kinds_and_findings_of_damage_are_as_published(damaged: Path):
    consent = next(
        f"{finding['rule']}:t-0:{lost[1]}"
        for finding in json.loads(printed("check", str(damaged), *CLOCK, "--json"))["report"]["log_dirs"][0][
            "findings"
        ]
        if finding["rule"] == "KR302"
        and (lost := re.search(r"--accept-data-loss KR302:t-0:(\d+)", finding["evidence"]))
    )
    kinds = set()
    for fixes in (("index,leftovers",), ("tail=excise", consent), ("tail=broker", consent)):
        typed = ("--fix", fixes[0], *(("--accept-data-loss", fixes[1]) if len(fixes) > 1 else ()))
        text = printed("plan", str(damaged), *typed, *CLOCK, "--json")
        assert faults("plan", text) == []
        kinds |= {
            change["type"]
            for partition in json.loads(text)["report"]["partitions"]
            for change in partition["changes"]
        }
    assert {"replace file", "mend log", "set aside"} <= kinds
    assert faults("check", printed("check", str(damaged), *CLOCK, "--json")) == []
    assert faults("verify", printed("verify", str(damaged), "--engine", "inline", "--json")) == []


def test_groups_transactions_and_explanations_are_as_published(offsets: Path):
    found = {verb: printed(verb, str(offsets), *CLOCK[2:], "--json") for verb in ("groups", "transactions")}
    assert json.loads(found["groups"])["report"]["groups"]
    assert json.loads(found["transactions"])["report"]["transactions"]
    assert {verb: faults(verb, text) for verb, text in found.items()} == {"groups": [], "transactions": []}
    for codes in ((), ("KR101",), ("D03",), ("RV25",)):
        assert faults("explain", printed("explain", *codes, "--json")) == []


def test_what_warm_reports_is_as_published():
    """It compiles for minutes, so its report is made here."""
    report = WarmReport(folder="/tmp", kernels=2, compiled=1, bytes=5, processors="x86-64-v3")
    assert faults("warm", report_document("warm", report, ExitCode.DONE).decode()) == []


def test_a_difference_of_two_plans_is_as_published(offsets: Path, tmp_path: Path):
    paths = [str(tmp_path / name) for name in ("one.krplan", "two.krplan")]
    for path, retention in zip(paths, ("1000", "2000"), strict=True):
        typed = ("--topic", "__consumer_offsets", "--set", f"delete.retention.ms={retention}", *CLOCK)
        printed("plan", str(offsets), *typed, "--out", path, "--json")
    text = printed("diff", *paths, "--json")
    assert json.loads(text)["report"]["differences"]
    assert faults("diff", text) == []


def test_a_refusal_of_every_verb_is_as_published(tmp_path: Path):
    missing = str(tmp_path / "nothing")
    refused = {"explain": ("KR999",), "diff": (missing, missing), "warm": ("--into", f"{missing}/x\0")}
    for verb in VERBS:
        text = printed(verb, *refused.get(verb, (missing,)), "--json")
        assert "error" in json.loads(text), verb
        assert faults(verb, text) == [], verb


def lines_of(offsets: Path, damaged: Path, tmp_path: Path) -> Iterator[str]:
    files = [str(path) for path in offsets.iterdir() if path.name.endswith(("checkpoint", ".properties"))]
    yield printed("dump", *files, "--json")
    snapshots = sorted((offsets / "__consumer_offsets-0").glob("*.snapshot"))
    yield printed("dump", *map(str, snapshots), "--json")
    for folder in ("__consumer_offsets-0", "__transaction_state-0"):
        yield printed("dump", str(offsets / folder), "--json", "--limit", "3000")
        yield printed("dump", str(offsets / folder), "--json", "--records", "--limit", "3000")
        yield printed(
            "dump", str(offsets / folder), "--json", "--records", "--decode", "none", "--limit", "30"
        )
    yield printed("dump", str(damaged / "t-0"), "--json")
    forms = ("--keys", "base64", "--values", "hex", "--cut", "1")
    yield printed("dump", str(damaged / "t-0"), "--json", "--records", *forms)
    old = unpack("oldformat-2.2.1-before", tmp_path)
    for folder in sorted(path for path in old.iterdir() if path.is_dir())[:4]:
        yield printed("dump", str(folder), "--json", "--limit", "500")
    new = unpack("offsets-tv2-4.3.1", tmp_path)
    for folder in sorted(path for path in new.iterdir() if path.is_dir())[:3]:
        yield printed("dump", str(folder), "--json", "--limit", "500")


def test_every_line_of_a_dump_is_as_published(offsets: Path, damaged: Path, tmp_path: Path):
    lines = [json.loads(line) for text in lines_of(offsets, damaged, tmp_path) for line in text.splitlines()]
    definitions = schema_of("dump")["$defs"]
    by_kind = {
        shape["properties"]["type"]["enum"][0]: f"#/$defs/{name}"
        for name, shape in definitions.items()
        if "type" in shape["properties"]
    }
    seen = {line["type"] for line in lines}
    assert set(by_kind) - seen <= {"unreadable", "text"}
    # one definition each: what is printed by the thousand is compared fast
    readers = {
        kind: Schema({"$ref": ref, "$defs": definitions}, closed=True) for kind, ref in by_kind.items()
    }
    assert [(line, fault) for line in lines for fault in readers[line["type"]].faults(line)][:5] == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda document: document.pop("verb"), "$.verb: is missing"),
        (lambda document: document["report"].pop("policy"), "$.report.policy: is missing"),
        (lambda document: document["report"].update(digest=5), "$.report.digest: 5 is no string"),
        (lambda document: document["report"].update(new=1), "$.report.new: not in the schema"),
        (lambda document: document.pop("report"), "$: 0 of 2 fit"),
    ],
)
def test_the_reader_of_schemas_sees_what_is_wrong(damaged: Path, change: Any, fault: str):
    document = json.loads(printed("plan", str(damaged), "--fix", "index", *CLOCK, "--json"))
    document["verb"] = "show"  # its document has the shape of a plan
    change(document)
    assert fault in "; ".join(faults("show", json.dumps(document)))
