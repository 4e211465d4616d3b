"""The options of a verb as typer takes them, and their values as the verb gets them."""
# No "from __future__ import annotations": the types of the options are needed as types when a verb is loaded.

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Annotated, Any, Final

import typer

from krepair.errors import UsageError
from krepair.options import OPTIONS, Option, Options

LogDirArgument = Annotated[
    str, typer.Argument(metavar="LOGDIR", help="The log directory of a stopped broker.")
]
PlanOrLogDirArgument = Annotated[
    str,
    typer.Argument(metavar="PLAN|LOGDIR", help="A plan file, or the log directory that it was applied to."),
]
PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file.")]

Verb = Callable[..., None]


def takes(names: str) -> Callable[[Verb], Verb]:
    """Give a verb these fields of ``Options``, in this order, as its argument ``options``."""
    wanted = names.split()
    typed = [_parameter(name, OPTIONS[name]) for name in wanted]

    def with_options(verb: Verb) -> Verb:
        own = [
            one for one in inspect.signature(verb, eval_str=True).parameters.values() if one.name != "options"
        ]
        parameters = [*own, *typed]

        @wraps(verb)
        def run(**given: Any) -> None:
            _check_no_empty_operand(given[each.name] for each in own if each.name in given)
            verb(options=options_of({name: given.pop(name) for name in wanted}), **given)

        # What typer reads in place of the verb's own.
        read: Any = run
        read.__signature__ = inspect.Signature(parameters)
        read.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return with_options


def _parameter(name: str, option: Option) -> inspect.Parameter:
    default: Any = option.default
    kind: Any = str
    if not option.metavar:
        default, kind = False, bool
    elif option.gathered is not None:
        default, kind = None, list[str] | None
    elif option.read is int:
        kind = int | None if default is None else int
    elif not isinstance(default, str):
        default, kind = None, str | None
    told = typer.Option(*option.names, metavar=option.metavar or None, help=option.text)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, told]
    )


def options_of(given: dict[str, Any]) -> Options:
    """The values of what was typed, by field; None and False where an option was not.

    Raises:
        UsageError: a value that cannot be read.
    """
    values = {}
    for name, typed in given.items():
        if typed is None or typed is False:
            continue
        values[name] = OPTIONS[name].value(typed if isinstance(typed, list) else [typed])
        if name in _KNOWN:
            values[name] = _KNOWN[name](values[name])
    return Options(**values)


def _known_fixes(fixes: tuple[str, ...]) -> tuple[str, ...]:
    from krepair.fixes.table import parse_fixes

    return parse_fixes(",".join(fixes))


def _known_rule(code: str) -> str:
    from krepair.checks.catalogue import RULES

    if code and code not in RULES:
        raise UsageError(f"--rule {code!r}: there is no such rule", next_command="krepair explain")
    return code


_KNOWN: Final[dict[str, Callable[[Any], Any]]] = {"fixes": _known_fixes, "rule": _known_rule}
"""Options whose values stand in tables of the code: each checks and gives what was read."""


def _check_no_empty_operand(operands: Iterable[Any]) -> None:
    """Refuse an empty word, which would name the folder in which krepair was started.

    Raises:
        UsageError: there is one.
    """
    for words in operands:
        if words == "" or (isinstance(words, list) and "" in words):
            raise UsageError(
                "expected a path or a name, found an empty word: is a variable of the shell empty?"
            )
