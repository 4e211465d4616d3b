"""Verbs and their options in typer's form, and the typed values in the form that a verb gets."""
# No "from __future__ import annotations": the types of the options are needed as types when a verb is loaded.

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Annotated, Any, Final

import typer
from typer import BadParameter, core
from typer.core import TyperCommand

from krepair.errors import UsageError
from krepair.next_command import Next
from krepair.options import OPTIONS, Option, Options

LogDirArgument = Annotated[
    str, typer.Argument(metavar="LOGDIR", help="The log directory of a stopped broker.")
]
PlanOrLogDirArgument = Annotated[
    str,
    typer.Argument(metavar="PLAN|LOGDIR", help="A plan file, or the log directory that it was applied to."),
]
PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file.")]

VerbFunction = Callable[..., None]


def takes(names: str) -> Callable[[VerbFunction], VerbFunction]:
    """Give a verb these fields of ``Options``, in this order, as its argument ``options``."""
    wanted = names.split()
    typed = [_parameter(name, OPTIONS[name]) for name in wanted]

    def with_options(verb: VerbFunction) -> VerbFunction:
        own = [
            parameter
            for parameter in inspect.signature(verb, eval_str=True).parameters.values()
            if parameter.name != "options"
        ]
        parameters = [*own, *typed]

        @wraps(verb)
        def run(**values: Any) -> None:
            _check_no_empty_operand(values[each.name] for each in own if each.name in values)
            verb(options=options_of({name: values.pop(name) for name in wanted}), **values)

        # The signature that typer reads in place of the verb's own.
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
    typer_option = typer.Option(*option.names, metavar=option.metavar or None, help=option.text)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, typer_option]
    )


def options_of(typed_values: dict[str, Any]) -> Options:
    """Read the typed values by field; None and False stand for an option that was not typed.

    Raises:
        UsageError: a value cannot be read.
    """
    values = {}
    for name, typed in typed_values.items():
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
        raise UsageError(f"--rule {code!r}: there is no such rule", next_command=Next.of("explain"))
    return code


_KNOWN: Final[dict[str, Callable[[Any], Any]]] = {"fixes": _known_fixes, "rule": _known_rule}
"""Options whose values are listed in tables of the code: each function checks a value and returns it."""


def _check_no_empty_operand(operands: Iterable[Any]) -> None:
    """Refuse an empty word, which would name the folder in which krepair was started.

    Raises:
        UsageError: there is an empty word.
    """
    for words in operands:
        if words == "" or (isinstance(words, list) and "" in words):
            raise UsageError(
                "expected a path or a name, found an empty word: is a variable of the shell empty?"
            )


# -- the verbs, each turned into a command when it is typed: only the help needs all


class VerbCommand(TyperCommand):
    """Command that refuses a value typed twice, of which typer would take the last; its help has whole sentences."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for parameter in self.params:
            if parameter.param_type_name == "argument":  # its name says more than <list[str]>
                vars(parameter)["display_type_rich"] = lambda ctx: ""

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first sentence of the help, for the list of verbs; typer would cut it."""
        del limit
        sentence = " ".join((self.help or "").partition("\n\n")[0].split())
        return f"{sentence.partition('. ')[0].rstrip('.')}."

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as typer does, after checking them.

        Raises:
            UsageError: an option that takes one value is typed twice.
        """
        _, _, typed = self.make_parser(ctx).parse_args(list(args))
        counts = Counter(parameter.name for parameter in typed if _takes_one_value(parameter))
        for parameter in typed:
            count = counts[parameter.name]
            if count > 1:
                times = "twice" if count == 2 else f"{count} times"
                raise UsageError(
                    f"{parameter.opts[0]} is given {times}: it takes one value, so only the last one would count; "
                    "give it once"
                )
        return super().parse_args(ctx, args)


def _takes_one_value(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and not (parameter.multiple or parameter.is_flag)


# -- plain values: typer reads every value through pydantic, whose loading takes a third of a short run

_MAKER: Final = "build_runtime_param"
"""Name of typer's function that builds the reader of a parameter."""


class PlainText:
    """Reader of one parameter's values.

    Args:
        descriptor: typer's description of the parameter's type.
        typers_own: function that builds typer's own reader.
    """

    def __init__(self, descriptor: Any, typers_own: Callable[[Any], Any]) -> None:
        self._descriptor, self._typers_own = descriptor, typers_own

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value in the form that the verb gets."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind = self._descriptor.annotation
        if kind is str and isinstance(value, str):
            return value
        if kind == list[str] and isinstance(value, list | tuple):
            return list(value)
        if kind is int and isinstance(value, int | str):
            try:
                return int(value)
            except ValueError:
                raise BadParameter(
                    f"a whole number was expected, not {value!r}", ctx=ctx, param=param
                ) from None
        return self._typers_own(self._descriptor).coerce(value, param=param, ctx=ctx)


def read_plainly() -> None:
    """Make typer use ``PlainText`` from now on."""
    typers_own = getattr(core, _MAKER, None)
    if typers_own is not None:
        setattr(core, _MAKER, lambda descriptor: PlainText(descriptor, typers_own))
