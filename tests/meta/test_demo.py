"""``make demo`` ends as it should, and the README shows what it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
