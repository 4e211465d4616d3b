"""The next command to type, as a value: verb, operands and options. Only this module spells and quotes a command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import ClassVar, Final

from krepair.errors import KrepairError
from krepair.options import OPTIONS, Options, Use, consents_of

LOG_DIR: Final = "LOGDIR"
PLAN: Final = "PLAN"
CONFIG: Final = "server.properties"
"""Placeholder for a path that only the command line knows, like the two above."""

PROGRAM: Final = "krepair"
"""Name of the program in every command; ``Next.typed`` has the name as typed on this host."""
_TAKES_A_VALUE: Final = frozenset(option.names[0] for option in OPTIONS.values() if option.metavar)
_ACCEPT_LOSS: Final = "--accept-data-loss"
"""Option that may occur more than once, with different values."""
_NAMES: Final = ("--topic", "--partition")
_CARRIED: Final[dict[str, tuple[Use, ...]]] = {
    "check": ("reading",),
    "plan": ("plan", "reading", "scratch"),
    "transactions": ("reading",),
}
"""Verb -> groups of options that are copied from the user's command line."""


class Next:
    """Command to type; ``NOTHING`` if there is none. JSON output and plan files contain it as text.

    Attributes:
        verb: verb of krepair, as typed; empty if ``words`` alone say what to do.
        words: operands (paths or their placeholders), then options; see ``by_hand``.
        out: path of the plan that the command makes; empty if it makes none.
        when: when, or as which user, to type it; may be empty.
    """

    __slots__ = ("out", "verb", "when", "words")
    typed_program: ClassVar[str] = PROGRAM
    """Program as the user typed it: a single copied file can be called only by its path."""

    def __init__(self, verb: str = "", words: tuple[str, ...] = (), out: str = "", when: str = "") -> None:
        self.verb, self.words, self.out, self.when = verb, words, out, when

    @classmethod
    def of(cls, verb: str, *words: str, out: str = "", when: str = "") -> Next:
        """Build a command of krepair: operands first, then options."""
        return cls(verb, words, out, when)

    @classmethod
    def by_hand(cls, text: str) -> Next:
        """Build a line for a shell, a command of another program, or an instruction in words; it is never quoted."""
        return cls("", (text,) if text else ())

    @classmethod
    def read(cls, text: str) -> Next:
        """Parse a command as a plan file spells it."""
        command, _, when = text.partition(_BEFORE_WHEN)
        try:
            krepair, verb, *words = shlex.split(command)
        except ValueError:
            return cls.by_hand(text)
        out = words[-1] if words[-2:-1] == ["--out"] else ""
        parsed = cls(verb, tuple(words[:-2] if out else words), out, when)
        return parsed if krepair == PROGRAM and str(parsed) == text else cls.by_hand(text)

    def __str__(self) -> str:
        if not self.verb:
            return "".join(self.words)
        words = (PROGRAM, self.verb, *self.words)
        typed = shlex.join((*words, "--out", self.out) if self.out else words)
        return f"{typed}{_BEFORE_WHEN}{self.when}" if self.when else typed

    @property
    def typed(self) -> str:
        """Command as typed on this host; a plan file keeps the canonical one."""
        text = str(self)
        return f"{shlex.quote(self.typed_program)}{text.removeprefix(PROGRAM)}" if self.verb else text

    def __repr__(self) -> str:
        return f"Next({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Next) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __bool__(self) -> bool:
        return bool(self.verb or self.words)

    def has(self, *option: str) -> bool:
        """Return whether the command has an option, with the given value if there is one."""
        return any(typed[: len(option)] == option for typed in _options(self.words))

    @property
    def accepts_loss(self) -> bool:
        """True if the command has ``--accept-data-loss``."""
        return self.has(_ACCEPT_LOSS)

    def at(self, when: str) -> Next:
        """Return the command with a note that says when, or as which user, to type it."""
        return Next(self.verb, self.words, self.out, when)

    def more(self, words: Sequence[str]) -> Next:
        """Return the command with its missing options added.

        Args:
            words: options of a command line, with their values.
        """
        if not self.verb:
            return self
        missing = chain.from_iterable(option for option in _options(words) if self._lacks(*option))
        return Next(self.verb, (*self.words, *missing), self.out, self.when)

    def _lacks(self, option: str, value: str = "") -> bool:
        """Return whether an option may be added.

        No ``--topic`` or ``--partition`` is added to a command that already has either, because one more name would
        select more partitions. A consent is added only if the command names the fix that needs it, or names no fix:
        krepair refuses it otherwise.
        """
        if option in _NAMES:
            return not any(map(self.has, _NAMES))
        if option != _ACCEPT_LOSS:
            return not self.has(option)
        fixes = [option[1] for option in _options(self.words) if option[0] == "--fix"]
        words = ",".join(fixes).split(",")
        taken = any(consents_of(word.partition("=")[0], [value]) for word in words)
        return not self.has(option, value) and (taken or not fixes)

    def carrying(self, options: Options) -> Next:
        """Return the command with the user's options that its verb also needs."""
        return self.more(options.words(*_CARRIED.get(self.verb, ())))

    def filled(self, *, plan: str = "", log_dir: str = "", config: str = "") -> Next:
        """Return the command with its placeholders replaced by the known paths.

        ``out`` is not replaced, because the old plan file may still be needed for undo.
        """
        if not self.verb:
            return self
        paths = {PLAN: plan, LOG_DIR: log_dir}
        known = len(self.words) - sum(map(len, _options(self.words)))
        operands = (operand(paths.get(word) or word) for word in self.words[:known])
        typed = (config if config and word == CONFIG else word for word in self.words[known:])
        return Next(self.verb, (*operands, *typed), self.out, self.when)


NOTHING: Final = Next()
"""No next command."""
COMPARE_REPLICAS: Final = Next.of("compare", "BROKER=LOGDIR", "BROKER=LOGDIR")
"""Next command where other replicas may have what this one lacks."""
INLINE: Final = Next.by_hand("the same command with --engine inline")
"""Next command where Spark is not available."""
SCRATCH: Final = Next.by_hand(
    "the same command with --scratch and a directory that this user may write: outside of the log directories, "
    "and on another file system where there is one"
)
"""Next command where nothing can be written to a scratch folder."""
_BEFORE_WHEN: Final = "   # "


def in_one_plan(commands: Iterable[Next], asked: Sequence[str]) -> tuple[Next, ...]:
    """Return the commands with those ``plan`` commands joined that differ only in ``--fix``.

    A joined command also has the requested fixes, unless they are all that it would have: that would repeat the present
    plan. A command that accepts data loss is not joined.

    Args:
        commands: commands to type before the plan is made again.
        asked: fixes of the present plan, as ``--fix`` takes them.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    kept: dict[tuple[str, ...], Next] = {}
    for command in commands:
        at = command.words.index("--fix") + 1 if "--fix" in command.words else 0
        if command.verb != "plan" or not at or command.accepts_loss:
            kept.setdefault((str(command),), command)
            continue
        others = (*command.words[:at], *command.words[at + 1 :])
        kept.setdefault(others, command)
        found.setdefault(others, []).extend(command.words[at].split(","))
    for others, first in found.items():
        fixes: dict[str, str] = {}
        for word in (*first, *asked):
            name = word.partition("=")[0]
            if fixes.get(name, name) == name:
                fixes[name] = word
        alone = sorted(fixes.values()) == sorted(asked)
        words = ",".join(dict.fromkeys(first) if alone else fixes.values())
        command = kept[others]
        at = command.words.index("--fix") + 1
        typed = (*command.words[:at], words, *command.words[at + 1 :])
        kept[others] = Next(command.verb, typed, command.out, command.when)
    return tuple(kept.values())


def _options(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            yield (word, next(rest, "")) if word in _TAKES_A_VALUE else (word,)


def operand(path: str) -> str:
    """Return a path spelled so that it is not taken for an option."""
    return f"./{path}" if path.startswith("-") else path


def by_id(verb: str, log_dir: str, plan_id: str) -> Next:
    """Build a command for a plan by its id, without the plan file."""
    return Next.of(verb, log_dir, "--plan-id", plan_id)


def of_error(error: KrepairError) -> Next:
    """Return the next command of an error."""
    return error.next_command if isinstance(error.next_command, Next) else NOTHING
