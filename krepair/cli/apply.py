"""``krepair apply``."""

from __future__ import annotations

from typing import Annotated

import typer

from krepair import options as parsing
from krepair.cli import options as shared
from krepair.cli.carry_out import carry_out
from krepair.options import parse_at


def apply(
    plan: shared.PlanArgument,
    *,
    expect: Annotated[
        str,
        typer.Option(
            "--expect",
            metavar="DIGEST",
            help="Refuse a plan of another digest; at least 32 of its 64 hex digits, from the front.",
        ),
    ] = "",
    at: shared.AtOption = "",
    free: Annotated[
        str,
        typer.Option(
            "--free",
            metavar="until-verified",
            help="Of a sequence (plan --free): also begin the steps of which there is no undo.",
        ),
    ] = "",
    cluster: shared.ClusterOption = "",
    cluster_as_of: shared.ClusterAsOfOption = None,
    cluster_config: shared.ClusterConfigOption = None,
    scratch: shared.ScratchOption = "",
    use_reserved: shared.UseReservedOption = False,
    engine: shared.EngineOption = "auto",
    master: shared.MasterOption = "",
    take_over: shared.TakeOverOption = "",
    metrics: shared.MetricsOption = "",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Carry out a plan: stage, verify, swap. Run again after an interruption it continues.

    Example: krepair apply offsets.krplan --expect 5c2e8d0a41f7b96380de12c4a97b3f65
    """
    options = shared.common_options(
        engine=engine,
        master=master,
        scratch=scratch,
        use_reserved=use_reserved,
        without_undo=parsing.parse_free(free),
        cluster=cluster,
        cluster_configs=tuple(cluster_config or ()),
        as_of=cluster_as_of,
        at=parse_at(at),
        take_over=parsing.parse_take_over(take_over),
    )
    from krepair.ops import apply as ops
    from krepair.ops.sequence import apply_sequence

    carry_out(
        plan,
        ops.apply,
        options,
        through=apply_sequence,
        json=json,
        quiet=quiet,
        metrics=metrics,
        expect=expect,
    )
