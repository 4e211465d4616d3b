"""The built packages work: the source archive gives the wheel, and the wheel's command runs in an empty environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.fixture_dirs import unpack
from tools import bundle, share

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


def run(*words: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )
    assert ended.returncode in {0, 2}, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel, and otherwise only what it needs."""
    room = tmp_path_factory.mktemp("installing")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", room / "dist", cwd=ROOT)
    [archive] = (room / "dist").glob("*.tar.gz")
    run("tar", "-xzf", archive, "-C", room, cwd=room)
    [source] = room.glob("krepair-*")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", room / "dist", cwd=source)
    [wheel] = (room / "dist").glob("*.whl")
    assert wheel.stat().st_size < 3 << 20
    where = room / "venv"
    venv.create(where, with_pip=False, symlinks=True)
    [site] = where.glob("lib/python*/site-packages")
    # The libraries of this environment, without the krepair of this folder: a .pth file in there is not read.
    # An environment may take its libraries from another one, which is then on the path as well.
    libraries = dict.fromkeys(
        [sysconfig.get_path("purelib"), *(p for p in sys.path if p.endswith("-packages"))]
    )
    (site / "needed.pth").write_text("".join(f"{path}\n" for path in libraries))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", where / "bin" / "python"]
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=room)
    return where


def test_the_command_of_the_wheel_works(home: Path, tmp_path: Path) -> None:
    said = run(home / "bin" / "python", "-c", "import krepair; print(krepair.__file__)", cwd=tmp_path)
    assert Path(said.strip()).is_relative_to(home)
    assert run(home / "bin" / "krepair", "--version", cwd=tmp_path).startswith("krepair ")
    plan = tmp_path / "plan"
    log_dir = unpack("timeindex-padded-2.2.1", tmp_path)
    run(home / "bin" / "krepair", "plan", log_dir, "--fix", "index", "--out", plan, "-q", cwd=tmp_path)
    assert plan.exists()
    assert "timeindex" in run(home / "bin" / "krepair", "show", plan, cwd=tmp_path)


def test_the_wheel_brings_all_that_is_no_python(home: Path) -> None:
    [package] = home.glob("lib/python*/site-packages/krepair")
    assert os.access(package / "engine/java_home/bin/java", os.X_OK)
    assert (package / "engine/spark_conf/log4j2.properties").exists()
    assert not (package / "kernels/compiled").exists()
    [licence] = home.glob("lib/python*/site-packages/krepair-*.dist-info/licenses/LICENSE")
    assert "Apache License" in licence.read_text()
    for name, text in share.files().items():
        assert (home / "share" / name).read_text() == text


def test_no_file_that_is_installed_needs_spark_to_be_imported(home: Path, tmp_path: Path) -> None:
    """The single file has neither Spark nor pandas nor pydantic; every verb's modules load without."""
    script = (
        "import sys, pkgutil, importlib\n"
        "class Gone:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] in {'pyspark', 'pandas', 'pydantic', 'pygments'}:\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Gone())\n"
        "import krepair\n"
        "for found in pkgutil.walk_packages(krepair.__path__, 'krepair.'):\n"
        "    if not found.name.rpartition('.')[2].startswith('spark'): importlib.import_module(found.name)\n"
        "from krepair.cli.main import app\n"
        "app(['dump', sys.argv[1], '--limit', '3'])\n"
    )
    log_dir = unpack("timeindex-ok-2.2.1", tmp_path)
    said = run(home / "bin" / "python", "-c", script, min(log_dir.glob("*/*.log")), cwd=tmp_path)
    assert "offset=0" in said


def test_every_library_of_the_single_file_is_locked() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    blocks = list(bundle.wanted(lock))
    assert {re.split("[= ]", block)[0] for block in blocks} == set(bundle.NEEDED)
    assert all("--hash=sha256:" in block for block in blocks)


def test_the_container_installs_by_the_script_and_runs_as_no_root() -> None:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("RUN ")] == [
        "RUN sh /source/tools/install_into.sh /opt/krepair ${JAVA}"
    ]
    assert "USER 65532:65532" in lines
    checked = subprocess.run(
        ["sh", "-n", str(ROOT / "tools/install_into.sh")], capture_output=True, check=False
    )
    assert checked.returncode == 0
