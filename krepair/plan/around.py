"""What is known of a plan besides the plan: its file, its disk, the review, and commands that make another one."""

from __future__ import annotations

from typing import NamedTuple

from krepair.plan.objection import Objection
from krepair.plan.view import Section


class Observed(NamedTuple):
    """What the disk of a log directory says of a plan.

    Attributes:
        free_bytes: that are free now for the broker's user.
        needed_bytes: that apply needs on top at its lowest instant.
        lines: the same in words, with what to do where it does not fit.
        commands: to type where it does not fit.
        fits: whether apply would go on.
    """

    free_bytes: int
    needed_bytes: int
    lines: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    fits: bool = True


class Around(NamedTuple):
    """What a page says beside the plan itself. What is not known is empty.

    Attributes:
        path: of the plan's file, for the commands.
        place: words for where the work is done (``--scratch``), which the next commands need too.
        same: command that makes the plan again.
        with_evidence: the same with what the running brokers say.
        with_later_horizon: the same with the time of the plan as the delete horizon.
        after_stop: of a preview, the same without ``--preview``.
        observed: what its disk says, or why it was not looked at.
        objections: of the review: apply will refuse the plan.
        unmended: what the plan met and does not mend.
        doubt: why the configuration seems to be that of another broker.
    """

    path: str = "PLAN"
    place: tuple[str, ...] = ()
    same: str = ""
    with_evidence: str = ""
    with_later_horizon: str = ""
    after_stop: str = ""
    observed: Observed | str = "not looked at"
    objections: tuple[Objection, ...] = ()
    unmended: Section = Section(title="", part="partitions")
    doubt: str = ""

    @property
    def lack(self) -> Observed | None:
        """What the disk says, where the plan does not fit on it."""
        return self.observed if isinstance(self.observed, Observed) and not self.observed.fits else None


NOTHING_KNOWN = Around()
