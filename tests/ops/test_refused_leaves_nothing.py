"""What apply refuses as a whole leaves nothing of krepair's own in the log directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from krepair.errors import ExitCode, KrepairError, UnreadableError
from krepair.ops import apply as apply_module
from krepair.ops.apply import apply
from krepair.ops.check import check
from tools.torture.scenes import Placed, Scene, build, look

NAMES = ("keys", "markers", "indexes")


@pytest.fixture(params=NAMES)
def placed(request: pytest.FixtureRequest, memory_dir: Path) -> tuple[Scene, Placed]:
    scene = build(request.param)
    return scene, scene.place(memory_dir)


@pytest.mark.parametrize("where", ["in the log directory", "not there"])
def test_a_scratch_folder_that_will_not_do(where: str, placed: tuple[Scene, Placed], tmp_path: Path) -> None:
    scene, site = placed
    before = look(site.path)
    scratch = site.path if where == "in the log directory" else tmp_path / "missing"
    with pytest.raises(KrepairError) as refused:
        apply(site.plan, replace(scene.options, scratch=str(scratch)))
    assert refused.value.exit_code is ExitCode.REFUSED
    assert look(site.path) == before


def test_what_stops_the_whole_plan_after_all_was_staged(
    placed: tuple[Scene, Placed], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, site = placed
    real, before = apply_module.stage_all, look(site.path)

    def staged(*given: object) -> None:
        real(*given)  # type: ignore[arg-type]
        raise UnreadableError("a worker is gone")

    monkeypatch.setattr(apply_module, "stage_all", staged)
    with pytest.raises(UnreadableError):
        apply(site.plan, scene.options)
    assert look(site.path) == before
    (report,) = check([str(site.path)], scene.options).log_dirs
    assert "KR901" not in {finding.rule for finding in report.findings}
    monkeypatch.undo()
    assert apply(site.plan, scene.options).exit_code is ExitCode.DONE
