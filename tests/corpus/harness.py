"""What every case goes through: check, plan, apply, verify and undo, each as a person would run it."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from krepair.findings.reports import LogDirReport
from krepair.ops.check import check
from krepair.options import EngineName, Options
from tests.builders import NOW_MS
from tests.corpus.bases import BASES, Made
from tests.corpus.case import Case
from tests.lab.jars import VERSIONS
from tests.ops.scene import FAR
from tests.start.agreement import disagreements


def made(case: Case, root: Path, topic: str = "") -> Made:
    """The damaged directory of a case."""
    out = BASES[case.base].write(root, topic or case.name)
    case.damage(out)
    return out


def options(case: Case, version: str = "") -> Options:
    """What the command line would hand over."""
    return Options(
        engine=EngineName.INLINE,
        now_ms=NOW_MS + 60_000,
        fixes=case.fixes,
        settings=tuple(BASES[case.base].config.items()),
        delete_horizon=FAR,
        accepted_losses=tuple(each.format(f"{case.name}-0") for each in case.consents),
        broker_version=version,
    )


def checked(case: Case, log_dir: Path, version: str = "") -> LogDirReport:
    """What check says, without what the disk has free at that moment; findings and forecast have to agree."""
    report = check([str(log_dir)], options(case, version)).log_dirs[0]
    assert disagreements(report) == []
    return replace(report, free_bytes=-1, free_files=-1)


def rules(report: LogDirReport) -> frozenset[str]:
    """The rules that it names, without the originals that apply keeps."""
    return frozenset(finding.rule for finding in report.findings) - {"KR901"}


def forecasts(case: Case, log_dir: Path) -> dict[str, str]:
    """Version -> what its start would do to the one partition."""
    return {version: checked(case, log_dir, version).forecast[0].expected for version in VERSIONS}
