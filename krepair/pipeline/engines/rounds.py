"""Items that a Spark worker did not take are given out again, until all are done or nobody takes any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from krepair.errors import RefusedError

_ROUNDS_IN_VAIN: Final = 3
_MOST_ROUNDS_IN_VAIN: Final = 12
"""Spark gives an item to any worker that is idle, so one that does not take it may be asked several times running."""
_SHORT_PATIENCE_S: Final = 0.1
_MOST_PATIENCE_S: Final = 15.0
_MOST_HOSTS_NAMED: Final = 3


class Rounds:
    """Counts rounds in which no item was done.

    Args:
        master: Spark master URL, for the words.
    """

    def __init__(self, master: str) -> None:
        self._master = master
        self._in_vain = 0
        self._number = 0
        self._why: dict[str, str] = {}

    @property
    def patience_s(self) -> float:
        """How long a worker that does not take a bundle keeps it. The longer, the more the others take meanwhile.

        Where nobody takes any it is short, so that the refusal comes soon.
        """
        return _SHORT_PATIENCE_S if self._in_vain else min(1.0 + self._number, _MOST_PATIENCE_S)

    def ended(self, given_out: int, left: Sequence[int], why: Mapping[str, str], workers: int) -> None:
        """Say how a round ended.

        Args:
            given_out: number of items of the round.
            left: those that no worker took.
            why: host name -> what it sees differently.
            workers: how many there are now, -1 where that is not known.

        Raises:
            RefusedError: every worker was asked in vain, or nobody took any item in many rounds.
        """
        self._number += 1
        if len(left) < given_out:
            self._in_vain, self._why = 0, {}
            return
        self._in_vain += 1
        self._why |= why
        all_asked = self._in_vain >= _ROUNDS_IN_VAIN and 0 < workers <= len(self._why)
        if all_asked or self._in_vain >= _MOST_ROUNDS_IN_VAIN:
            self._refuse()

    def _refuse(self) -> None:
        named = [f"host {host}: {text}" for host, text in sorted(self._why.items())]
        more = f"; and {len(named) - _MOST_HOSTS_NAMED} more hosts" if len(named) > _MOST_HOSTS_NAMED else ""
        raise RefusedError(
            f"no worker of {self._master} sees what this host sees: {'; '.join(named[:_MOST_HOSTS_NAMED])}{more}; "
            "nothing was replaced",
            next_command="krepair ... --engine inline",
        )
