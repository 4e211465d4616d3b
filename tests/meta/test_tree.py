"""Contents that the project must not have, and those that every module must have."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = {".zst", ".png"}
MODULES = sorted((ROOT / "krepair").rglob("*.py"))
MOST_LINES = 900
"""A module with more lines says why: ``Long because ...``."""
# Put together here, so that this file is not a hit itself.
FORBIDDEN = {
    "address of a package registry": r"pypi\.|pythonhosted\.|repo1?\.maven|\bmaven\.org|--(?:extra-)?index-url\s+\S*:",
    "path of somebody's machine": r"(?<![\w.-])/(?:work|home|Users|opt(?!/krepair))/[\w.-]+|/root/(?!\w+\.krplan)",
    "address of the web": r"https?://(?!www\.apache\.org/licenses/|maven\.apache\.org/POM|json-schema\.org/draft|127\.0\.0\.1|localhost|www\.w3\.org)",
}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git work tree")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [file for file in files if file.is_file() and file.suffix not in BINARY]


@pytest.mark.parametrize("what", sorted(FORBIDDEN))
def test_no_tracked_file_holds_what_is_forbidden(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    hits = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for file in tracked()
        if file != Path(__file__)
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert hits == []


def called_by_other_packages() -> dict[str, set[str]]:
    """Module -> names that modules of another package import from it."""
    found: dict[str, set[str]] = {}
    for module in MODULES:
        package = module.relative_to(ROOT).parts[1]
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("krepair."):
                parts = str(node.module).split(".")
                for name in node.names:
                    if parts[1] != package:
                        found.setdefault(str(node.module), set()).add(name.name)
    return found


def test_every_module_and_what_other_packages_call_has_a_docstring() -> None:
    called = called_by_other_packages()
    silent = []
    for module in MODULES:
        tree = ast.parse(module.read_text())
        path = module.relative_to(ROOT)
        if tree.body and not ast.get_docstring(tree):
            silent.append(str(path))
        names = called.get(".".join(path.with_suffix("").parts).removesuffix(".__init__"), set())
        silent += [
            f"{path}: {node.name}"
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
            and node.name in names
            and not ast.get_docstring(node)
        ]
    assert silent == []


def test_no_module_is_a_drawer_and_none_is_too_long() -> None:
    drawers = [each for each in MODULES if each.stem in {"utils", "util", "helpers", "common", "misc"}]
    long = [
        each
        for each in MODULES
        if len(each.read_text().splitlines()) > MOST_LINES and "Long because" not in each.read_text()
    ]
    assert (drawers, long) == ([], [])


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == set()


def test_one_function_writes_offsets_as_names_of_files_have_them() -> None:
    digits = re.compile(r":0?20d?\}|zfill\(20\)|OFFSET_DIGITS\}")
    hits = [
        str(module.relative_to(ROOT))
        for module in MODULES
        for line in digits.findall(module.read_text())
        if line
    ]
    assert hits == ["krepair/formats/filenames.py"], (
        "use formats.filenames.offset_name, log_name or segment_name"
    )


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {
        ".".join(each.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for each in MODULES
    }
    imports: dict[str, set[str]] = {}
    for module in MODULES:
        name = ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        imports[name] = set()
        for node in ast.walk(
            ast.parse(module.read_text())
        ):  # late imports, and those for types alone, count too
            if isinstance(node, ast.ImportFrom) and node.module in names:
                found = {f"{node.module}.{each.name}" for each in node.names}
                imports[name] |= {each if each in names else node.module for each in found}
    # Raises ``CycleError``, which names the circle.
    assert set(TopologicalSorter(imports).static_order()) == names


def test_every_package_is_in_the_contract_of_the_layers() -> None:
    packages = {each.stem if each.is_file() else each.name for each in (ROOT / "krepair").iterdir()}
    packages -= {"__init__", "__pycache__", "py"}
    text = (ROOT / "pyproject.toml").read_text()
    layers = re.search(r"^layers = \[(.*)\]$", text, re.MULTILINE)
    assert layers is not None
    assert set(re.findall(r"\w+", layers[1])) == packages


@pytest.mark.parametrize(
    "lock", ["requirements.lock", "requirements-build.lock", "requirements-torture.lock"]
)
def test_every_locked_requirement_has_a_version_and_a_hash(lock: str) -> None:
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    loose = [line for line in text.splitlines() if "==" not in line or "--hash=sha256:" not in line]
    assert loose == []


def test_dependencies_of_the_package_are_locked() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert listed is not None
    wanted = {re.split(r"[<>=!~]", name)[0] for name in re.findall(r'"([^"]+)"', listed[1])}
    locked = {
        line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line
    }
    assert wanted - locked == set()


def test_no_module_imports_from_a_test() -> None:
    """What several tests need lives in a module without ``test_``."""
    hits = []
    for file in sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = [*(node.module or "").split("."), *(each.name for each in node.names)]
            elif isinstance(node, ast.Import):
                names = [part for each in node.names for part in each.name.split(".")]
            else:
                continue
            hits += [f"{file.relative_to(ROOT)}: {name}" for name in names if name.startswith("test_")]
    assert hits == []
