"""Mutation testing: finds small changes of the code that no test notices.

    python -m tools.torture --part mutants --samples 60             so many of each package, chosen by the seed
    python -m tools.torture --replay mutants:krepair/rules/cleanable_range.py#41

A mutant has one place of a module changed. The quick tests of its package run under it, in a process of their own,
until one fails. Texts with a blank are messages and are not changed; nor are docstrings, annotations, ``assert`` and
imports. What only tests against real brokers, with Spark, or of elapsed time notice counts as not noticed.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tools.torture.state import State

ROOT: Final = Path(__file__).resolve().parents[2]
ENV: Final = "KREPAIR_MUTANT"
MOST_SECONDS: Final = 900
NO_TESTS: Final = 5
"""Exit code of pytest where every test of the files is left out."""

TESTS: Final = {
    "rules": "tests/replicas tests/twins",
    "plan": "tests/ops",
    "checks": "tests/readings",
    "commit": "tests/ops",
    "durable": "tests/hostile",
}
"""Package that is mutated -> tests that judge it after its own."""

_PAIRS: Final = (
    "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, Add Sub, Mult FloorDiv, BitAnd BitOr, LShift RShift"
)
_CALLS: Final = "min max, any all, bisect_left bisect_right, startswith endswith"
OTHER: Final = {
    first: two
    for pair in f"{_PAIRS}, {_CALLS}".split(", ")
    for first, two in [pair.split(), pair.split()[::-1]]
}
"""Name of an operator or a function -> what stands in its place."""


def _others(node: ast.AST) -> Iterator[ast.AST]:
    """Return the possible replacements of a node."""
    match node:
        case ast.cmpop() | ast.operator() if type(node).__name__ in OTHER:
            yield getattr(ast, OTHER[type(node).__name__])()
        case ast.And() | ast.Or():
            yield ast.Or() if isinstance(node, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str(text)) if len(text.split()) == 1:
            yield ast.Constant(f"{text}~")
        case ast.Constant(value=bytes(text)) if text:
            yield ast.Constant(text + b"~")
        case ast.IfExp():
            yield from (node.body, node.orelse)
        case ast.Name(id=name) if name in OTHER:
            yield ast.Name(OTHER[name], node.ctx)
        case ast.Attribute(attr=name) if name in OTHER:
            yield ast.Attribute(node.value, OTHER[name], node.ctx)
        case ast.If():
            yield from (ast.If(ast.Constant(value), node.body, node.orelse) for value in (True, False))
        case ast.comprehension(ifs=[_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)
        case (
            ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom())
            | ast.Raise()
            | ast.Continue()
            | ast.Break()
        ):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign() | ast.Delete():
            yield ast.Pass()


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Constant()) | ast.keyword(arg="strict"):
            return True
        case ast.JoinedStr():
            return any(isinstance(text, ast.Constant) and " " in str(text.value) for text in node.values)
    return False


def _places(parent: ast.AST, line: int = 0) -> Iterator[tuple[Any, Any, ast.AST, int]]:
    """Yield (holder, key, node, line) of everything that may change below a node; holder and key locate it."""
    for name, value in ast.iter_fields(parent):
        if name in {"annotation", "returns", "decorator_list", "ctx"}:
            continue
        holder, nodes = (value, enumerate(value)) if isinstance(value, list) else (parent, [(name, value)])
        for key, node in nodes:
            if isinstance(node, ast.AST) and not _is_left_alone(node):
                at = getattr(node, "lineno", line)
                yield holder, key, node, at
                yield from _places(node, at)


def mutants_of(path: str) -> dict[str, str]:
    """Return every mutant of a file: path from the root of the project, ``#`` and a number -> line and change."""
    source = (ROOT / path).read_text()
    texts: list[str] = []
    for _, _, node, line in _places(ast.parse(source)):
        for other in _others(node):
            old, new = (
                ast.unparse(version).partition("\n")[0] or type(version).__name__ for version in (node, other)
            )
            texts.append(f"line {line}: {old} -> {new}    in: {source.splitlines()[line - 1].strip()}")
    return {f"{path}#{number}": text for number, text in enumerate(texts)}


def mutated(source: str, number: int) -> ast.Module:
    """Return the tree of a module with the change of this number."""
    tree = ast.parse(source)
    changes = ((holder, key, other) for holder, key, node, _ in _places(tree) for other in _others(node))
    holder, key, other = next(change for at, change in enumerate(changes) if at == number)
    if isinstance(holder, list):
        holder[key] = other
    else:
        setattr(holder, key, other)
    return ast.fix_missing_locations(tree)


class _Finder(SourceFileLoader):
    """Import hook that returns the mutant of a module: pytest loads this file as a plugin before all others."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        del path, target
        spec = importlib.util.spec_from_file_location(name, self.path, loader=self)
        return spec if name == self.name else None

    def get_code(self, fullname: str) -> Any:
        del fullname
        tree = mutated(Path(self.path).read_text(), int(os.environ[ENV].partition("#")[2]))
        return compile(tree, self.path, "exec")


if os.environ.get(ENV):
    _path = os.environ[ENV].partition("#")[0]
    sys.meta_path.insert(0, _Finder(_path.removesuffix(".py").replace("/", "."), os.fspath(ROOT / _path)))


def is_noticed(case: str) -> bool:
    """Return whether a test fails under a mutant, or takes too long; the tests of its own module run first."""
    path = Path(case.partition("#")[0])
    package = next(package_name for package_name in TESTS if path.is_relative_to(f"krepair/{package_name}"))
    named = [str(file) for file in sorted(ROOT.glob(f"tests/**/test_{path.stem}*.py"))]
    rest = [f"tests/{package}", *TESTS[package].split()]
    return (bool(named) and _fails(case, named)) or _fails(case, rest)


def _fails(case: str, tests: list[str]) -> bool:
    words = ["-m", "pytest", "-x", "-q", "-p", "tools.torture.mutants", "-p", "no:cacheprovider", "-m"]
    command = [sys.executable, *words, "not broker and not spark and not slow", *tests]
    own = os.environ | {ENV: case}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=own, capture_output=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in {0, NO_TESTS}


def sample_of(package: str, how_many: int, seed: int) -> dict[str, str]:
    """Return the given number of mutants of a package, chosen by the seed; all for 0."""
    files = sorted((ROOT / "krepair" / package).rglob("[!_]*.py"))
    mutants = [mutant for file in files for mutant in mutants_of(os.fspath(file.relative_to(ROOT))).items()]
    return dict(random.Random(seed).sample(mutants, min(how_many, len(mutants))) if how_many else mutants)


def run(seeds: range, workdir: Path, state: State) -> None:
    """Try a sample of each package, as a part of the programme."""
    del workdir
    for package in TESTS:
        if is_noticed(f"krepair/{package}/#0"):
            state.wrong(package, "its tests fail without a mutant")
        how_many = state.most(0) if state.samples else 0
        for case, text in sample_of(package, how_many, seeds.start).items():
            if state.is_done(case) or state.time_is_up():
                continue
            noticed = is_noticed(case)
            if not noticed:
                state.wrong(case, f"no test notices {text}")
            state.keep(case, {"mutants": 1, "killed": int(noticed)})


def replay(case: str, workdir: Path) -> list[str]:
    """Try one mutant again."""
    del workdir
    return [] if is_noticed(case) else [mutants_of(case.partition("#")[0])[case]]
