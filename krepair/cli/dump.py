"""``krepair dump``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def dump(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Files of a log directory; a folder means its files in order."
        ),
    ],
    *,
    batches: Annotated[bool, typer.Option("--batches", help="Of logs: the headers of batches.")] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Of logs: the records. Without either both are shown.")
    ] = False,
    offsets: Annotated[
        str | None,
        typer.Option(
            "--offsets", metavar="A..B", help="Only these offsets, both included; as 100.. or ..200 too."
        ),
    ] = None,
    grep: Annotated[
        str,
        typer.Option(
            "--grep",
            metavar="PATTERN",
            help="Only records with this regular expression in key, value, headers or decoded fields.",
        ),
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", help="Stop after so many lines; those of files and damage do not count."
        ),
    ] = None,
    keys: Annotated[
        str,
        typer.Option(
            "--keys",
            metavar="auto|text|json|hex|base64",
            help="How keys are shown; auto is text, or base64 where the bytes are no UTF-8.",
        ),
    ] = "auto",
    values: Annotated[
        str, typer.Option("--values", metavar="auto|text|json|hex|base64", help="How values are shown.")
    ] = "auto",
    cut: Annotated[
        int, typer.Option("--cut", metavar="BYTES", help="Show at most so many bytes of a key or a value.")
    ] = 1 << 20,
    decode: Annotated[
        str,
        typer.Option(
            "--decode",
            metavar="auto|offsets|transactions|share|none",
            help="Decode records of the coordinators' topics; auto goes by the name of the folder.",
        ),
    ] = "auto",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show what is in files of a log directory. Writes nothing; exits with 2 when something is damaged.

    Example: krepair dump /var/lib/kafka/__consumer_offsets-7 --records --grep my-group --json
    """
    from krepair.ops import dump as ops

    lowest, highest = ops.parse_offsets(offsets) if offsets is not None else (-(2**63), 2**63 - 1)
    run = ops.Dump(
        files,
        ops.DumpOptions(
            batches=batches,
            records=records,
            as_json=json,
            lowest=lowest,
            highest=highest,
            grep=grep,
            limit=limit,
            keys=keys,
            values=values,
            cut=cut,
            decode=decode,
        ),
    )
    out = sys.stdout.buffer
    sys.stdout.flush()
    for piece in run.lines():
        out.write(piece)
    out.flush()
    raise typer.Exit(int(run.exit_code))
