"""The page in a real browser: narrow and wide windows, light and dark, print."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from krepair.checks.catalogue import Finding
from krepair.cli.views.check import check_view
from krepair.cli.views.page import found_page, plan_page
from krepair.findings.reports import CheckReport, LogDirReport
from krepair.ops.show import show_view
from krepair.options import Options
from tests.cli.reported import summary
from tests.conftest import in_ci
from tests.plan.plans import good_plan, left_alone, numbered, partition

pytestmark = pytest.mark.slow
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module", autouse=True)
def browser() -> None:
    """Without a browser these tests are skipped; under CI that is a failure."""
    if BROWSER is None:
        reason = "no chromium on the path (Debian: apt install chromium)"
        pytest.fail(reason, pytrace=False) if in_ci() else pytest.skip(reason)


SCREENS = Path(__file__).parent / "screens"

MEASURE = """<!doctype html><title>-</title><body><script>
const pages = [...document.querySelectorAll("iframe")];
addEventListener("load", () => {
  const sizes = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, edge = page.documentElement.clientWidth;
    const out = [...page.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > edge + 1);
    return [frame.width, page.documentElement.scrollWidth, out.slice(0, 5).map(e => e.tagName + " " + e.className)];
  });
  const pre = document.createElement("pre");
  pre.id = "sizes"; pre.textContent = JSON.stringify(sizes); document.body.append(pre);
});
</script>FRAMES</body>"""


def browse(folder: Path, *arguments: str) -> str:
    command = [
        str(BROWSER),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={folder / 'profile'}",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout


@pytest.fixture(scope="module")
def page() -> str:
    """A page of two thousand changes with names as long as Kafka lets them be."""
    many = [
        partition(partition=number, folder=f"{'x' * 240}.{number}-{number}", topic=f"{'x' * 240}.{number}")
        for number in range(2000)
    ]
    plan = good_plan(*many, *(left_alone(folder=f"bad-{number}", partition=number) for number in range(50)))
    return plan_page(plan, show_view(plan, "a plan with a long name " * 9))


def test_nothing_sticks_out_of_a_narrow_or_a_wide_window(page: str, tmp_path: Path):
    widths = (400, 800, 1600)
    frames = "".join(
        f'<iframe width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe>' for width in widths
    )
    (tmp_path / "frames.html").write_text(MEASURE.replace("FRAMES", frames))
    dumped = browse(
        tmp_path, "--virtual-time-budget=10000", "--dump-dom", f"file://{tmp_path / 'frames.html'}"
    )
    sizes = re.search(r'<pre id="sizes">(.*?)</pre>', dumped)
    assert sizes is not None
    measured = json.loads(html.unescape(sizes[1]))
    assert [int(width) for width, _, _ in measured] == list(widths)
    assert [(width, out) for width, scroll, out in measured if out or scroll > int(width)] == []


WRAPPED = """<!doctype html><title>-</title><body><script>
addEventListener("load", () => {
  const wrapped = [...document.querySelectorAll("iframe")].flatMap(frame => {
    const page = frame.contentDocument;
    return [...page.querySelectorAll("td.short, .severity, td.right")].filter(cell => {
      const text = document.createRange();
      text.selectNodeContents(cell);
      const boxes = [...text.getClientRects()].filter(box => box.width);
      return new Set(boxes.map(box => Math.round(box.bottom / 9))).size > 1;
    }).map(cell => [frame.width, cell.textContent.trim()]);
  });
  const pre = document.createElement("pre");
  pre.id = "sizes"; pre.textContent = JSON.stringify(wrapped); document.body.append(pre);
});
</script>FRAMES</body>"""


def checked() -> str:
    """What check found, with each severity, codes, names and shares."""
    rules = ("KR202", "KR401", "KR101", "KR409", "KR605", "KR703")
    findings = tuple(
        Finding(
            rule=rule,
            partition=f"__consumer_offsets-{number}",
            file=f"{number:020d}.timeindex",
            evidence="why " * 40,
        )
        for rule in rules
        for number in range(9)
    )
    made = tuple(
        summary(
            f"__consumer_offsets-{number}",
            segments=24,
            log_bytes=1_308_238,
            markers=9166,
            marker_bytes=700_000,
            emptied=8876,
            emptied_bytes=500_000,
        )
        for number in range(9)
    )
    report = CheckReport(log_dirs=(LogDirReport(log_dir="/data", findings=findings, partitions=made),))
    return found_page(check_view(report, Options(every=True), browser=True))


def test_no_name_code_severity_or_number_is_broken_in_two(tmp_path: Path):
    plan = good_plan(
        *(partition(partition=n, folder=f"__consumer_offsets-{n}") for n in range(9)), left_alone()
    )
    pages = (checked(), plan_page(plan, show_view(plan, "p.krplan")))
    frames = "".join(
        f'<iframe width="{width}" height="900" srcdoc="{html.escape(one)}"></iframe>'
        for width in (400, 900, 1400)
        for one in pages
    )
    (tmp_path / "frames.html").write_text(WRAPPED.replace("FRAMES", frames))
    dumped = browse(
        tmp_path, "--virtual-time-budget=10000", "--dump-dom", f"file://{tmp_path / 'frames.html'}"
    )
    wrapped = re.search(r'<pre id="sizes">(.*?)</pre>', dumped)
    assert wrapped is not None
    assert json.loads(html.unescape(wrapped[1])) == []


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height of a picture: its first chunk begins with them."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, bytes a pixel, and the lines of an 8-bit picture that is not interlaced (PNG specification, 9.2)."""
    at, data = 8, b""
    width = height = depth = 0
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, bits, colour = struct.unpack(">IIBB", body[:10])
            assert bits == 8
            depth = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += body
        at += size + 12
    raw, stride = zlib.decompress(data), width * depth
    lines = [bytearray(stride)]
    for number in range(height):
        start = number * (stride + 1)
        rule, line, above = raw[start], bytearray(raw[start + 1 : start + 1 + stride]), lines[-1]
        for place in range(stride if rule else 0):
            left = line[place - depth] if place >= depth else 0
            corner = above[place - depth] if place >= depth else 0
            guess = (0, left, above[place], (left + above[place]) // 2, paeth(left, above[place], corner))[
                rule
            ]
            line[place] = (line[place] + guess) & 255
        lines.append(line)
    return width, depth, [bytes(line) for line in lines[1:]]


def paeth(left: int, above: int, corner: int) -> int:
    near = left + above - corner
    return min((left, above, corner), key=lambda value: abs(near - value))


def colours(picture: Path) -> set[tuple[int, int, int]]:
    width, depth, lines = pixels(picture.read_bytes())
    return {tuple(line[x * depth : x * depth + 3]) for line in lines for x in range(width)}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("scheme", "paper", "marker"),
    [(1, (255, 255, 255), (224, 142, 43)), (0, (20, 24, 29), (217, 138, 47))],
    ids=["light", "dark"],
)
def test_light_and_dark_follow_the_system_and_the_pictures_are_drawn(
    tmp_path: Path, scheme: int, paper: tuple[int, int, int], marker: tuple[int, int, int]
):
    plan = good_plan(partition())
    (tmp_path / "page.html").write_text(plan_page(plan, show_view(plan, "p.krplan")))
    browse(
        tmp_path,
        f"--blink-settings=preferredColorScheme={scheme}",
        "--force-device-scale-factor=0.5",
        "--window-size=400,3200",
        f"--screenshot={tmp_path / 'shot.png'}",
        f"file://{tmp_path / 'page.html'}",
    )
    seen = colours(tmp_path / "shot.png")
    assert paper in seen
    assert marker in seen


@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_is_the_one_whose_picture_was_looked_at(tmp_path: Path, width: int):
    """Its first screen at half its size. Fonts differ between machines, so the page is compared, not its pixels."""
    plan = good_plan(*map(numbered, range(60)))
    page = plan_page(plan, show_view(plan, "p.krplan"))
    (tmp_path / "page.html").write_text(page)
    browse(
        tmp_path,
        "--force-device-scale-factor=0.5",
        f"--window-size={width},1500",
        f"--screenshot={tmp_path / 'shot.png'}",
        f"file://{tmp_path / 'page.html'}",
    )
    kept, of_page = SCREENS / f"plan-{width}.png", SCREENS / f"plan-{width}.sha256"
    digest = hashlib.sha256(page.encode()).hexdigest()
    if os.environ.get("KREPAIR_WRITE_SCREENS"):
        shutil.copy(tmp_path / "shot.png", kept)
        of_page.write_text(f"{digest}\n")
    shapes = [size_of(path.read_bytes()) for path in (tmp_path / "shot.png", kept)]
    assert shapes == [(width // 2, 750)] * 2
    assert of_page.read_text() == f"{digest}\n", "look at the page: KREPAIR_WRITE_SCREENS=1 keeps its picture"


def test_two_thousand_changes_are_printed_on_a_few_sheets(page: str, tmp_path: Path):
    (tmp_path / "page.html").write_text(page)
    browse(
        tmp_path,
        "--no-pdf-header-footer",
        f"--print-to-pdf={tmp_path / 'page.pdf'}",
        f"file://{tmp_path / 'page.html'}",
    )
    sheets = re.findall(rb"/Type\s*/Page\b", (tmp_path / "page.pdf").read_bytes())
    assert 2 <= len(sheets) <= 20
