"""Counts the lines of ``krepair/``, by package, without docstrings and blank lines; against another tree or commit.

python -m tools.count_lines --against 5adb171
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "krepair"


def main() -> None:
    """Print a row for each package, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", required=True)
    commit = parser.parse_args().against
    before, now = counted(_at(commit)), counted(_here())
    for package in sorted(before.keys() | now.keys()):
        if before[package] != now[package]:
            print(f"{package:24} {before[package]:7} -> {now[package]:7} {now[package] - before[package]:+7}")
    total = now.total() - before.total()
    print(f"{'all':24} {before.total():7} -> {now.total():7} {total:+7}")


def counted(modules: Iterator[tuple[str, str]]) -> Counter[str]:
    """Package -> lines of its modules that are neither blank nor of a docstring."""
    lines: Counter[str] = Counter()
    for path, text in modules:
        lines[str(Path(path).parent)] += lines_of(text)
    return lines


def lines_of(text: str) -> int:
    """Lines of a module that are neither blank nor of a docstring."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        # A text that stands alone: also behind a constant, where it says what that is.
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line.strip()) and number not in docstrings for number, line in enumerate(text.splitlines(), 1)
    )


def _here() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text()


def _at(commit: str) -> Iterator[tuple[str, str]]:
    listed = _git("ls-tree", "-r", "--name-only", commit, f"{PACKAGE}/")
    for name in listed.splitlines():
        if name.endswith(".py"):
            yield name, _git("show", f"{commit}:{name}")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
