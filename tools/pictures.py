"""Pictures of ``docs/``, drawn from the real log directories of ``fixtures/`` (``make docs``); a test keeps them fresh.

They are drawn from what krepair itself plans for these directories, with the shapes of the page that
``krepair show --format html`` writes.
"""

from __future__ import annotations

import html
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import zstandard

from krepair.cli.views.page import Box, Strip, strip, strip_bytes, strips_of
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan, ReplaceFile
from krepair.plan.view import bytes_text

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
WINDOW_BYTES = 1 << 27
NOW_MS = 1_795_260_720_000
"""An hour after the broker of the larger fixture stopped, as in the demonstration."""

WIDTH, LEFT = 760, 90
SHAPES = WIDTH - LEFT - 10
STYLE = """
text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1b1f24; }
.soft { fill: #57606a; } .paper { fill: #ffffff; }
.records, .entries { fill: #2f6fb7; } .markers { fill: #e08e2b; } .emptied { fill: #f2d675; }
.left { fill: #c3cad3; } .zeros { fill: #b4bdc8; } .track { fill: #f1f3f5; } .seam { stroke: #ffffff; }
@media (prefers-color-scheme: dark) {
text { fill: #e6eaef; } .soft { fill: #a3adb8; } .paper { fill: #14181d; } .track { fill: #1d232b; }
.records, .entries { fill: #5b9be0; } .markers { fill: #d98a2f; } .emptied { fill: #cdb35a; }
.left { fill: #48525e; } .zeros { fill: #56626f; } .seam { stroke: #14181d; } }
"""
CLASSES = {"left as it is": "left"}


def plan_of(fixture: str, **options: object) -> Plan:
    """What krepair plans for one of the fixtures."""
    with tempfile.TemporaryDirectory() as folder:
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
        with (
            (FIXTURES / f"{fixture}.tar.zst").open("rb") as packed,
            decompressor.stream_reader(packed) as stream,
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            if hasattr(tarfile, "data_filter"):  # Debian 12's Python 3.11.2 has none yet
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(folder)
        asked = Options(engine=EngineName.INLINE, now_ms=NOW_MS, only_replica=("*",), **options)  # type: ignore[arg-type]
        return make_plan(str(Path(folder) / "logs"), asked)


def pictures() -> dict[str, str]:
    """File name under ``docs/pictures/`` -> SVG, for every picture."""
    settings = (("delete.retention.ms", "1000"), ("segment.bytes", "100000"))
    one = (("__consumer_offsets", 0),)
    (bloat, *_), _ = strips_of(plan_of("offsets-bloat-2.2.0-clean", settings=settings, partitions=one))
    padded = plan_of("timeindex-padded-2.2.1", fixes=("index",))
    changes = (change for one in padded.partitions for change in one.changes)
    cut = [one for one in changes if isinstance(one, ReplaceFile) and one.name.endswith(".timeindex")]
    longest = max(cut, key=lambda one: one.size_before - one.size_after)
    return {
        "marker-compaction.svg": compaction(bloat),
        "time-index.svg": time_index(longest.size_after, longest.size_before - longest.size_after),
    }


def compaction(drawn: Strip) -> str:
    """One partition of transaction markers, before and after."""
    whole = strip_bytes(drawn.before)
    lines = [
        text(0, 18, f"{drawn.partition} of a 2.2.0 broker whose cleaner ran all the time"),
        *row("before", 30, strip(drawn.before, whole)),
        *seams((cell.bytes for cell in drawn.before[:-1]), whole, 30),
        *row("after", 66, strip(drawn.after, whole)),
        *seams((cell.bytes for cell in drawn.after[:-1]), whole, 66),
        text(
            LEFT,
            114,
            f"{drawn.segments_before} segments, {bytes_text(whole)}, become {drawn.segments_after}, "
            f"{bytes_text(strip_bytes(drawn.after))}",
            "soft",
        ),
        *legend(132, ("records", "markers", "emptied", "left")),
    ]
    return svg(150, lines, "segments of one partition before and after marker compaction")


def time_index(entries: int, zeros: int) -> str:
    """One time index as a broker that was killed has left it."""
    seam = max(1000 * entries / (entries + zeros), 4)
    boxes = (Box(0, 0, seam, 1, "entries", ""), Box(seam, 0, 1000 - seam, 1, "zeros", ""))
    lines = [
        text(0, 18, "A .timeindex that was never cut to its entries (2.2.1)"),
        *row("file", 30, boxes),
        text(
            LEFT,
            78,
            f"{entries // 12} entries, then {bytes_text(zeros)} of zeros: a broker reads the year 1970",
            "soft",
        ),
        *legend(96, ("entries", "zeros")),
    ]
    return svg(114, lines, "entries and zeros of a time index")


def row(name: str, y: int, boxes: Iterable[Box]) -> list[str]:
    """A name, and shapes beside it."""
    shapes = [f'<rect class="track" x="{LEFT}" y="{y}" width="{SHAPES}" height="26"/>']
    for box in boxes:
        x, width = LEFT + box.x * SHAPES / 1000, box.width * SHAPES / 1000
        kind = CLASSES.get(box.kind, box.kind)
        shapes.append(f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="26"/>')
    return [text(0, y + 18, name, "soft"), *shapes]


def seams(sizes: Iterable[int], whole: int, y: int) -> list[str]:
    """Where segments end."""
    at, lines = 0, []
    for size in sizes:
        at += size
        x = LEFT + at * SHAPES / whole
        lines.append(f'<line class="seam" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 26}"/>')
    return lines


def legend(y: int, kinds: Sequence[str]) -> list[str]:
    """What the colours mean."""
    words = {"left": "active segment, not touched"}
    lines, x = [], LEFT
    for kind in kinds:
        word = words.get(kind, kind)
        lines += [
            f'<rect class="{kind}" x="{x}" y="{y - 10}" width="11" height="11"/>',
            text(x + 16, y, word),
        ]
        x += 40 + 8 * len(word)
    return lines


def text(x: int, y: int, words: str, kind: str = "") -> str:
    """A line of words."""
    return f'<text{f" class={chr(34)}{kind}{chr(34)}" if kind else ""} x="{x}" y="{y}">{html.escape(words)}</text>'


def svg(height: int, lines: Iterable[str], label: str) -> str:
    """A whole picture."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 0 {WIDTH + 10} {height}" role="img">'
    paper = f'<rect class="paper" x="-10" y="0" width="{WIDTH + 10}" height="{height}"/>'
    note = "<!-- Generated by `make docs` from fixtures/; do not edit. -->"
    body = "\n".join([note, f"<title>{html.escape(label)}</title>", f"<style>{STYLE}</style>", paper, *lines])
    return f"{head}\n{body}\n</svg>\n"
