"""How many options there are: what nobody would miss is not among them."""

from __future__ import annotations

from krepair.cli.main import Verbs

MOST_OF_PLAN = 25
MOST_OF_ALL = 48


def options_of(verb: str) -> set[str]:
    """Long names, without ``--help``."""
    parameters = Verbs()[verb].params
    return {one.opts[0] for one in parameters if one.param_type_name == "option" and one.name != "help"}


def test_plan_has_at_most_so_many_options() -> None:
    assert len(options_of("plan")) <= MOST_OF_PLAN


def test_all_verbs_together_have_at_most_so_many_different_options() -> None:
    assert len(set[str]().union(*map(options_of, Verbs()))) <= MOST_OF_ALL
