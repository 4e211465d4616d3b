"""``make demo``: shows in one minute, without a broker, how krepair reclaims a real log directory.

Everything happens in ``.demo/``, which is recreated on each run; the fixture itself is only read.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path

from tests.fixture_dirs import unpack_into

FIXTURE = "offsets-bloat-2.2.0-clean"
TOPIC = "__consumer_offsets"
# An hour after the broker stopped: producers expire by the clock, and the reader is to see the README's figures.
NOW = "2026-11-21T11:32:00Z"
WIDTH = 100
DONE, FOUND = 0, 2


class DemoFailedError(RuntimeError):
    """A command did not end as it should."""


class Demo:
    """Steps of the demonstration.

    Args:
        folder: path of the folder for everything, relative to the working directory; emptied first.
        engine: engine of ``krepair apply``.
    """

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder = folder
        self.engine = engine
        self.log_dir = folder / "logs"
        self.topics = folder / "topics.json"
        self.plan = folder / "plan.json"
        self.page = folder / "plan.html"

    def run(self) -> None:
        """Run all steps in order.

        Raises:
            DemoFailedError: a command ended with another exit code than expected.
        """
        started = time.monotonic()
        self.unpack()
        before = self.log_bytes()
        about = ["--topic-config", str(self.topics), "--topic", TOPIC, "--now", NOW]
        # this directory is of a single broker
        alone = ["--only-replica", "*"]

        title(
            "1. What is wrong?",
            "The broker is stopped. check only reads: it says what is wrong, what it costs, and what the "
            "next broker start would do. Exit code 2 means: there are findings.",
        )
        self.krepair("check", str(self.log_dir), *about, expected=FOUND)

        title(
            "2. What would be done about it?",
            "plan only reads, too. Everything that apply will do is in this one file, with a reason for each "
            "class of batches. The topic's own "
            f"settings are in {self.topics}: this broker ran with delete.retention.ms=1000, so that markers "
            "may go early; without the file krepair takes Kafka's default of one day and says so. --now is "
            "an hour after the broker stopped: producers expire by the clock, and so you see the README's "
            "figures. --only-replica says that no other broker has these partitions; without it markers "
            "stay, since another replica may need them. Exit code 2 means: there is something to do.",
        )
        self.krepair("plan", str(self.log_dir), *about, *alone, "--out", str(self.plan), expected=FOUND)
        say("\nWhy each class of batches stays or goes is one of the sections of the plan:\n")
        self.krepair("show", str(self.plan), "--section", "reasons", expected=DONE)

        title(
            "3. For the change ticket",
            "The same plan as one HTML file with pictures: it needs no network and no script. `--format md` is for a "
            "ticket that takes only text.",
        )
        self.krepair("show", str(self.plan), "--format", "html", expected=DONE, into=self.page)
        say(f"Open it in a browser: {self.page.resolve()}")

        title(
            "4. Do it",
            "Spark tasks stage and verify the new segments in a work folder; one process then swaps "
            "them in under the broker's own lock. The originals are kept. (On an input as small as this one "
            "most of the time is Spark's start; --engine auto would have worked without it.)",
        )
        self.krepair("apply", str(self.plan), "--engine", self.engine, expected=DONE)

        title(
            "5. Is it right?",
            "verify reads the result with a second implementation and holds it against the plan and the "
            "originals.",
        )
        self.krepair("verify", str(self.plan), "--engine", "inline", expected=DONE)

        title("6. Bytes before and after")
        self.show_bytes(before, self.log_bytes())

        title("7. Is anything left to do?", "The same plan again: nothing, exit code 0.")
        self.krepair("plan", str(self.log_dir), *about, *alone, expected=DONE)

        title(
            "8. And now?",
            f"It took {time.monotonic() - started:.0f} seconds. The originals are still there. Try:",
        )
        for command, why in (
            (f"undo {self.plan}", "puts every byte and every modification time back"),
            (f"purge {self.plan}", "or frees the originals; no undo after it"),
            ("explain KR101", "what the finding means"),
        ):
            say(f"  .venv/bin/krepair {command:<36} # {why}")

    def unpack(self) -> None:
        """Recreate the folder from the fixture with its modification times, which are the clock of markers."""
        title(
            "A stopped broker's log directory",
            "Written by a real Kafka 2.2.0 whose cleaner was running all the time: 18,000 transactions of "
            f"offset commits, and a {TOPIC} full of markers and emptied batches that nothing removes "
            "(KAFKA-8335).",
        )
        shutil.rmtree(self.folder, ignore_errors=True)
        unpack_into(FIXTURE, self.folder)
        made_by = json.loads((self.log_dir / "lab-manifest.json").read_text())
        settings = {topic: each["config"] for topic, each in made_by["topics"].items() if each["config"]}
        self.topics.write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")
        for folder, size in self.log_bytes().items():
            say(f"  {self.log_dir / folder}  {size:>9,} bytes of .log")

    def log_bytes(self) -> dict[str, int]:
        """Sum the sizes of the ``.log`` files in each partition folder of the topic."""
        folders = sorted(self.log_dir.glob(f"{TOPIC}-*"))
        return {folder.name: sum(file.stat().st_size for file in folder.glob("*.log")) for folder in folders}

    def show_bytes(self, before: dict[str, int], after: dict[str, int]) -> None:
        """Print the table of bytes, and what the backups still occupy.

        Raises:
            DemoFailedError: nothing became smaller.
        """
        say(f"  {'partition':<24} {'.log before':>12} {'.log after':>12} {'left':>6}")
        for folder, size in before.items():
            say(f"  {folder:<24} {size:>12,} {after[folder]:>12,} {after[folder] / size:>6.0%}")
        total, bytes_after = sum(before.values()), sum(after.values())
        say(f"  {'together':<24} {total:>12,} {bytes_after:>12,} {bytes_after / total:>6.0%}")
        if bytes_after >= total:
            raise DemoFailedError("nothing became smaller")
        say("\nThe disk gets the difference back at purge: until then the originals are kept for undo.")

    def krepair(self, *arguments: str, expected: int, into: Path | None = None) -> None:
        """Show a command and run it.

        Args:
            expected: expected exit code.
            into: file for its standard output, or None.

        Raises:
            DemoFailedError: the command ended with another exit code.
        """
        say(f"$ krepair {shlex.join(arguments)}{f' > {into}' if into else ''}\n")
        command = [str(Path(sys.executable).parent / "krepair"), *arguments]
        with ExitStack() as files:
            output = files.enter_context(into.open("wb")) if into else None
            code = subprocess.run(command, check=False, stdout=output).returncode
        say(f"\n[exit code {code}]")
        if code != expected:
            raise DemoFailedError(
                f"krepair {arguments[0]} ended with exit code {code}, {expected} was expected"
            )


def title(text: str, explanation: str = "") -> None:
    """Print the heading of a step, and a few sentences."""
    say(f"\n{text}\n{'=' * len(text)}")
    if explanation:
        say(textwrap.fill(explanation, WIDTH) + "\n")


def say(text: str) -> None:
    """Print at once, to keep the order with the commands' own output."""
    print(text, flush=True)


def main() -> int:
    """Run the demonstration; 1 if a step did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="made anew (default: .demo)")
    parser.add_argument(
        "--engine", default="spark", choices=("spark", "inline", "auto"), help="of krepair apply"
    )
    options = parser.parse_args()
    try:
        Demo(options.folder, options.engine).run()
    except DemoFailedError as error:
        print(f"\nthe demonstration failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
