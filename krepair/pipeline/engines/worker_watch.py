"""Says when the workers of a Spark cluster are gone, or never came, and gives up when that lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from krepair.errors import RefusedError

SAID_AFTER_S: Final = 20.0
GIVEN_UP_AFTER_S: Final = 60.0
"""Where none has come at all."""
LOST_AFTER_S: Final = 300.0
"""Where all are gone: their hosts may be starting again."""
WHAT_TO_DO: Final = "start a worker that has a free core and {memory} of memory, and can reach this host"
"""``memory`` is what each executor asks for."""
OR_STOP: Final = ", or stop this command (Ctrl-C) and type it again with --engine inline"


class WorkerWatch:
    """Looks at how many workers there are while work is under way.

    Args:
        master: Spark master URL, for the words.
        count: tells how many workers there are, -1 where that is not known.
        say: takes one line for a person.
        memory: that each executor asks for, for the words.
        clock: seconds; a test may give another one.
    """

    def __init__(
        self,
        master: str,
        count: Callable[[], int],
        say: Callable[[str], None],
        memory: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master = master
        self._count = count
        self._say = say
        self._what_to_do = WHAT_TO_DO.format(memory=memory)
        self._clock = clock
        self._last = 0
        self._none_since = clock()
        self._said = False
        self._patience = GIVEN_UP_AFTER_S

    def look(self) -> None:
        """Compare with what was there before.

        Raises:
            RefusedError: none has come in a minute, or there has been none any more for five.
        """
        found = self._count()
        if found < 0:
            return
        now = self._clock()
        if found:
            if found < self._last:
                self._say(
                    f"krepair: {self._last - found} of {self._last} Spark workers are gone; the others do their work "
                    "again, and nothing is lost"
                )
            elif self._said:
                self._say(f"krepair: {found} Spark workers are there; the work goes on")
            self._none_since, self._said, self._patience = now, False, LOST_AFTER_S
        elif self._last:
            self._none_since = now
        self._last = found
        waited = now - self._none_since
        if found:
            return
        if waited >= self._patience:
            raise RefusedError(
                f"no worker of {self._master} has been there for {waited:.0f} s; nothing was replaced; "
                f"{self._what_to_do}",
                next_command="krepair ... --engine inline",
            )
        if waited >= SAID_AFTER_S and not self._said:
            self._said = True
            self._say(
                f"krepair: no worker of {self._master} has been there for {waited:.0f} s; {self._what_to_do}"
                f"{OR_STOP}. krepair "
                f"gives up after {self._patience:.0f} s"
            )
