"""What to type next, as a value: which verb, of what, with which options. Only here a command is spelled and quoted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import ClassVar, Final

from krepair.errors import KrepairError
from krepair.options import OPTIONS, Options, Use, consents_of

LOG_DIR: Final = "LOGDIR"
PLAN: Final = "PLAN"
CONFIG: Final = "server.properties"
"""What stands for a path that only the command line knows."""

PROGRAM: Final = "krepair"
"""The program in every command; see ``Next.typed`` for how a person calls it here."""
_TAKES_A_VALUE: Final = frozenset(option.names[0] for option in OPTIONS.values() if option.metavar)
_ACCEPT_LOSS: Final = "--accept-data-loss"
"""The option that may be there with another value."""
_NAMES: Final = ("--topic", "--partition")
_CARRIED: Final[dict[str, tuple[Use, ...]]] = {
    "check": ("reading",),
    "plan": ("plan", "reading", "scratch"),
    "transactions": ("reading",),
}
"""Verb -> which of the options that were typed its command needs, too."""


class Next:
    """A command to type, as a value; ``NOTHING`` where there is none. Programs and plans get its text.

    Attributes:
        verb: of krepair, as typed; empty: what is to do is said by ``words`` alone.
        words: behind the verb: paths, or what stands for them, then the options; see ``by_hand``.
        out: where a plan goes; empty where the verb makes none.
        when: when, or as whom, it is typed; may be empty.
    """

    __slots__ = ("out", "verb", "when", "words")
    typed_program: ClassVar[str] = PROGRAM
    """As the program was typed: a single file that was copied somewhere is found by its path only."""

    def __init__(self, verb: str = "", words: tuple[str, ...] = (), out: str = "", when: str = "") -> None:
        self.verb, self.words, self.out, self.when = verb, words, out, when

    @classmethod
    def of(cls, verb: str, *words: str, out: str = "", when: str = "") -> Next:
        """A command of krepair: first the operands, then the options."""
        return cls(verb, words, out, when)

    @classmethod
    def by_hand(cls, text: str) -> Next:
        """A line for a shell, of another program, or what to do in words; it stays as it is."""
        return cls("", (text,) if text else ())

    @classmethod
    def read(cls, text: str) -> Next:
        """A command as it stands in a plan file."""
        command, _, when = text.partition(_BEFORE_WHEN)
        try:
            krepair, verb, *words = shlex.split(command)
        except ValueError:
            return cls.by_hand(text)
        out = words[-1] if words[-2:-1] == ["--out"] else ""
        found = cls(verb, tuple(words[:-2] if out else words), out, when)
        return found if krepair == PROGRAM and str(found) == text else cls.by_hand(text)

    def __str__(self) -> str:
        if not self.verb:
            return "".join(self.words)
        words = (PROGRAM, self.verb, *self.words)
        typed = shlex.join((*words, "--out", self.out) if self.out else words)
        return f"{typed}{_BEFORE_WHEN}{self.when}" if self.when else typed

    @property
    def typed(self) -> str:
        """The command as it is typed on this host; a plan file keeps the plain one."""
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
        """Whether it has an option, with this value where one is named."""
        return any(one[: len(option)] == option for one in _options(self.words))

    @property
    def accepts_loss(self) -> bool:
        """Whether it accepts that data is lost."""
        return self.has(_ACCEPT_LOSS)

    def at(self, when: str) -> Next:
        """With when, or as whom, it is typed."""
        return Next(self.verb, self.words, self.out, when)

    def more(self, words: Sequence[str]) -> Next:
        """With the options that it does not have yet.

        Args:
            words: of a command line, options with their values.
        """
        if not self.verb:
            return self
        missing = chain.from_iterable(one for one in _options(words) if self._lacks(*one))
        return Next(self.verb, (*self.words, *missing), self.out, self.when)

    def _lacks(self, option: str, value: str = "") -> bool:
        """Whether an option can be added.

        What names partitions belongs together: with one name more, the command would be about more partitions. A
        consent is refused without the fix that takes it.
        """
        if option in _NAMES:
            return not any(map(self.has, _NAMES))
        if option != _ACCEPT_LOSS:
            return not self.has(option)
        fixes = [one[1] for one in _options(self.words) if one[0] == "--fix"]
        words = ",".join(fixes).split(",")
        taken = any(consents_of(word.partition("=")[0], [value]) for word in words)
        return not self.has(option, value) and (taken or not fixes)

    def carrying(self, options: Options) -> Next:
        """With those of the options that were typed which it needs, too."""
        return self.more(options.words(*_CARRIED.get(self.verb, ())))

    def filled(self, *, plan: str = "", log_dir: str = "", config: str = "") -> Next:
        """With the paths that are known. A new plan goes to a new file: the old one may still be needed for undo."""
        if not self.verb:
            return self
        paths = {PLAN: plan, LOG_DIR: log_dir}
        known = len(self.words) - sum(map(len, _options(self.words)))
        operands = (operand(paths.get(one) or one) for one in self.words[:known])
        typed = (config if config and one == CONFIG else one for one in self.words[known:])
        return Next(self.verb, (*operands, *typed), self.out, self.when)


NOTHING: Final = Next()
"""Nothing is left to type."""
COMPARE_REPLICAS: Final = Next.of("compare", "BROKER=LOGDIR", "BROKER=LOGDIR")
"""What is left to type where other replicas may say what this one does not."""
INLINE: Final = Next.by_hand("the same command with --engine inline")
"""What is left to type where Spark cannot be had."""
SCRATCH: Final = Next.by_hand(
    "the same command with --scratch and a directory that this user may write: outside of the log directories, "
    "and on another file system where there is one"
)
"""What is left to type where nothing can be written to a scratch folder."""
_BEFORE_WHEN: Final = "   # "


def _options(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            yield (word, next(rest, "")) if word in _TAKES_A_VALUE else (word,)


def operand(path: str) -> str:
    """A path that is not taken for an option."""
    return f"./{path}" if path.startswith("-") else path


def by_id(verb: str, log_dir: str, plan_id: str) -> Next:
    """A verb of a plan, without the plan file."""
    return Next.of(verb, log_dir, "--plan-id", plan_id)


def of_error(error: KrepairError) -> Next:
    """What an error says to type next."""
    return error.next_command if isinstance(error.next_command, Next) else NOTHING
