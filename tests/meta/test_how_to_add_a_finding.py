"""The architecture page's example of a new finding works: check finds it and explain knows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest

from krepair.checks.catalogue import RULES, Rule
from krepair.errors import ExitCode
from krepair.findings import table as findings
from krepair.ops.check import check
from krepair.ops.explain import row
from krepair.options import EngineName, Options
from tests import builders as b

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


@pytest.fixture(autouse=True)
def example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the example into the catalogue and the table, as its steps say."""
    code = re.search(r"## How to add a finding.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(code[1], str(PAGE), "exec"), names)
    monkeypatch.setitem(RULES, "KR999", cast("Rule", names["ROW"]))
    of_a_partition = cast("findings.PartitionRow", names["logs_open_to_all"])
    monkeypatch.setattr(findings, "OF_A_PARTITION", (*findings.OF_A_PARTITION, of_a_partition))


@pytest.mark.parametrize(("mode", "is_found"), [(0o644, False), (0o666, True)])
def test_check_finds_a_log_that_every_user_can_write(mode: int, is_found: bool, tmp_path: Path) -> None:
    directory = b.LogDir(tmp_path / "logs")
    directory.partition("t").segment(b.data(0, 5))
    directory.write(clean_stop=True)
    log = tmp_path / "logs" / "t-0" / f"{0:020d}.log"
    log.chmod(mode)
    report = check([str(tmp_path / "logs")], Options(engine=EngineName.INLINE, now_ms=b.NOW_MS))
    found = [one for one in report.log_dirs[0].findings if one.rule == "KR999"]
    assert [(one.partition, one.file) for one in found] == [("t-0", log.name)] * is_found
    assert all(one.evidence.startswith("mode 666") for one in found)
    assert not is_found or report.exit_code is ExitCode.FOUND


def test_explain_knows_it() -> None:
    explained = row("KR999")
    assert isinstance(explained, Rule)
    assert explained.code == "KR999"
