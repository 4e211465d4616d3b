"""Documentation says what the code says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.checks.catalogue import CATALOGUE, RULES
from krepair.cli.outcome import VERBS
from krepair.errors import EXIT_CODE_MEANING, ExitCode, KrepairError
from krepair.fixes.table import FIXES
from krepair.ops import explain
from krepair.plan import risks as risks_of
from krepair.plan.codes import RISKS, SKIPPED
from krepair.plan.objection import OBJECTIONS
from krepair.rules.reasons import REASONS
from krepair.rules.replicas import model as m
from tools import docs

ROOT = Path(__file__).resolve().parents[2]
NAMED_RISKS = {
    "EVERY_REPLICA", "LAGGING_REPLICA", "LATE_READERS", "ANOTHER_REPLICA", "OTHERS_HAVE", "KEPT_ORIGINALS", "ASSUMED"
}  # fmt: skip
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


def test_generated_pages_are_fresh() -> None:
    made = docs.pages()
    assert [name for name in made if (docs.DOCS / name).read_text() != made[name]] == [], "run make docs"


def test_links_inside_the_project_lead_to_files_and_headings() -> None:
    assert {page: broken for page in PAGES if (broken := broken_links(page))} == {}


def broken_links(page: Path) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        file = page if not path else page.parent / path
        if target.startswith(("http:", "https:")):
            broken.append(f"{target}: only links inside the project")
        elif not file.exists():
            broken.append(f"{target}: no such file")
        elif anchor and anchor not in headings(file):
            broken.append(f"{target}: no such heading")
    return broken


def headings(file: Path) -> set[str]:
    found = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_the_rows_that_are_read_of_a_plan_on_a_full_disk_are_on_its_page() -> None:
    rows = set(re.findall(r'_Row\(\s*"([^"]+)"', (ROOT / "krepair/plan/short.py").read_text()))
    page = (ROOT / "docs/runbooks/reclaim-a-full-disk.md").read_text()
    listed = page.partition("Read in this order:")[2].partition("If nothing fits")[0]
    named = set(re.findall(r"\*\*([^*]+)\*\*", listed))
    assert len(named) > 5
    assert named <= rows


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    unknown = {
        (page, target)
        for page in PAGES
        for target in re.findall(r"(?:`|^|\$ )make ([a-z]+)", page.read_text(), re.MULTILINE)
        if target not in targets
    }
    assert unknown == set()


def test_verbs_and_options_in_examples_exist() -> None:
    help_text = docs.cli_page()
    assert {page: unknown for page in PAGES if (unknown := unknown_words(page, help_text))} == {}


def unknown_words(page: Path, help_text: str) -> list[str]:
    """Of the examples of a page."""
    unknown = []
    for block in re.findall(r"^ *```(?:sh|text)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in re.findall(
            r"^ *(?:\$ )?(?:\.venv/bin/)?(krepair .*)", block.replace("\\\n", " "), re.MULTILINE
        ):
            words = line.split("#")[0].split()
            if words[1] not in {*VERBS, "[OPTIONS]"}:
                unknown.append(words[1])
            unknown.extend(
                word
                for word in words[2:]
                if word.startswith("--") and f"{word.partition('=')[0]} " not in help_text
            )
    return unknown


def test_every_page_of_the_documentation_can_be_reached_from_its_index() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
        waiting.extend((page.parent / target).resolve() for target in targets)
    assert set((ROOT / "docs").rglob("*.md")) - reached == set()


def test_pages_that_tests_are_named_in_name_tests_that_exist() -> None:
    named = {
        path
        for page in PAGES
        for path in re.findall(r"\btests/[A-Za-z0-9_/]+(?:\.py)?(?:::\w+)?", page.read_text())
    }
    missing = [each for each in sorted(named) if not is_there(each)]
    assert missing == []


def test_functions_that_the_page_on_architecture_names_are_in_the_files_that_it_names() -> None:
    """Renames have left old names there, and nobody noticed but a stranger."""
    page = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"`([\w/]+\.py)` \((`[\w.]+`(?:, `[\w.]+`)*)", page)
    pairs = [(file, name) for file, names in named for name in re.findall(r"[\w.]+", names)]
    assert len(pairs) > 100
    assert [pair for pair in pairs if not is_defined(*pair)] == []


def is_defined(file: str, name: str) -> bool:
    code = (ROOT / "krepair" / file).read_text()
    return all(
        re.search(rf"\b(?:def|class) {part}\b|^ *{part}\b.*[:=]", code, re.MULTILINE)
        for part in name.split(".")
    )


def is_there(path: str) -> bool:
    file, _, test = path.partition("::")
    return (ROOT / file).exists() and (not test or f"def {test}(" in (ROOT / file).read_text())


def test_exit_codes_are_unique_documented_and_fit_a_process() -> None:
    members = ExitCode.__members__
    assert len({int(code) for code in members.values()}) == len(members)
    assert set(EXIT_CODE_MEANING) == set(ExitCode)
    assert all(0 <= code < 128 for code in ExitCode)
    assert [code for code in ExitCode if f"| {int(code)} | {code.name} |" not in docs.exit_codes_page()] == []


def test_every_error_has_an_exit_code_of_its_own_kind() -> None:
    errors = KrepairError.__subclasses__()
    codes = [error.exit_code for error in errors]
    assert len(set(codes)) == len(errors)
    assert set(codes) <= set(ExitCode) - {ExitCode.DONE, ExitCode.BUG, ExitCode.FOUND}


def test_codes_of_findings_reasons_and_objections_never_meet() -> None:
    codes = [rule.code for rule in CATALOGUE] + [reason.value for reason in REASONS] + list(OBJECTIONS)
    assert len(set(codes)) == len(codes)


def test_changelog_has_the_version_of_the_package() -> None:
    from krepair import __version__

    text = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{__version__}]" in text
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_every_code_of_a_partition_left_alone_is_in_the_rules() -> None:
    codes = {
        call.args[0].value
        for module in (ROOT / "krepair").rglob("*.py")
        for call in ast.walk(ast.parse(module.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Skipped"
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    assert len(codes) > 5
    text = (ROOT / "docs" / "rules.md").read_text()
    assert sorted(code for code in codes if f"`{code}`" not in text) == []


def test_every_code_that_a_plan_prints_can_be_explained() -> None:
    skipped, risks = set[str](), set[str]()
    for module in (ROOT / "krepair").rglob("*.py"):
        for call in ast.walk(ast.parse(module.read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            if call.func.id == "Skipped" and isinstance(call.args[0], ast.Constant):
                skipped.add(call.args[0].value)
            codes = [one.value for one in call.keywords if one.arg == "code"]
            if call.func.id == "Risk" and codes and isinstance(codes[0], ast.Constant):
                risks.add(codes[0].value)
    page = (ROOT / "docs/rules.md").read_text().partition("## Partitions that are skipped")[2]
    rows = re.findall(r"^\| (`[^|]*) \|", page.partition("\n## ")[0], re.MULTILINE)
    assert len(rows) > 20
    skipped |= {code for row in rows for code in re.findall(r"`([a-z][a-z-]+)`", row)}
    named = {getattr(risks_of, name) for name in dir(risks_of) if name in NAMED_RISKS}
    assert skipped <= set(SKIPPED)
    assert risks | named | {*risks_of.KEEPING.values()} <= set(RISKS)
    assert not set(SKIPPED) & set(RISKS)
    for code in (*SKIPPED, *RISKS, *RULES, *OBJECTIONS, "D03", "13"):
        assert explain.explained(explain.row(code)).sections


def test_the_readme_names_every_fix_that_is_built() -> None:
    limits = (ROOT / "README.md").read_text().partition("## Limits")[2].partition("\n## ")[0]
    sentence = limits.partition("It repairs only what its fixes cover: ")[2].partition(".")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == {fix.name for fix in FIXES}


# -- the words of compare, which stand in JSON


PAGE = Path(__file__).parents[2] / "docs" / "compare.md"


def test_each_kind_stands_on_the_page_with_its_rule_and_below_its_verdict() -> None:
    diverged, others = PAGE.read_text().split("Kinds of divergence:")[1].split("Kinds of the other verdicts:")
    row = re.compile(r"^\| ([a-z-]+) \| (KR\d{3}) \|", re.MULTILINE)
    assert dict(row.findall(diverged) + row.findall(others)) == m.RULE_OF
    assert {kind for kind, verdict in m.VERDICT_OF.items() if verdict == m.DIVERGED} == dict(
        row.findall(diverged)
    ).keys()
    assert m.VERDICT_OF.keys() == m.RULE_OF.keys()


def test_each_verdict_stands_on_the_page() -> None:
    rows = re.findall(r"^\| ([a-z, -]+) \| .* \| \d+ \|$", PAGE.read_text(), re.MULTILINE)
    assert {word for row in rows for word in row.split(", ")} == set(m.VERDICTS)


# -- the demonstration


def shown_in_the_readme() -> list[str]:
    """Every line of the README's account of the demonstration."""
    account = (ROOT / "README.md").read_text().partition("## What `make demo` shows")[2].partition("\n## ")[0]
    block = re.findall(r"```text\n(.*?)```", account, re.DOTALL)[0]
    return block.splitlines()


@pytest.mark.slow
def test_the_demonstration_ends_well_and_prints_the_figures_of_the_readme(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.demo", "--engine", "inline", "--folder", str(tmp_path / "demo")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    page = tmp_path / "demo" / "plan.html"
    assert f"Open it in a browser: {page}" in done.stdout.splitlines()
    assert page.read_text().rstrip().endswith("</html>")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    missing = [
        line
        for line in shown_in_the_readme()
        if not any(printed.startswith(" ".join(line.split())) for printed in lines)
    ]
    assert missing == []
    assert len(shown_in_the_readme()) == 10
