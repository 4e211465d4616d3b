"""A plan that is shown again: whether it fits on the disk now, where its log directory is on this host."""

from __future__ import annotations

import os
from typing import NamedTuple

from krepair.errors import KrepairError
from krepair.formats.filenames import private_folder
from krepair.logdir.space import read_space
from krepair.ops.fits_on_disk import fit_section
from krepair.ops.need import need_of_all
from krepair.ops.target import targets_of
from krepair.plan.model import Plan, Preview
from krepair.plan.render import NEXT, with_next
from krepair.plan.view import Section, View


class Observed(NamedTuple):
    """What the disk of a log directory says of a plan that was not applied yet.

    Attributes:
        free_bytes: that are free now.
        needed_bytes: that apply needs on top at its lowest instant.
        fits: whether apply would go on.
        section: the same in words, with the command where it does not fit.
    """

    free_bytes: int
    needed_bytes: int
    fits: bool
    section: Section


def observe(plan: Plan) -> Observed | None:
    """Look at the disk; nothing is read but its figures.

    Returns:
        None where nothing can be said: the plan changes nothing, or was applied here already; or its log directory is
        not here. Whether the plan is of this host is asked before.
    """
    targets = targets_of(plan)
    if not targets or isinstance(plan.preview, Preview):
        return None
    try:
        if _begun(plan):
            return None
        space = read_space(plan.log_dir)
        section, fits = fit_section(plan, targets, space)
    except (OSError, KrepairError):
        return None
    return Observed(space.free_bytes, need_of_all(plan, targets).bytes, fits, section)


def with_observed(page: View, observed: Observed) -> View:
    """The page of a plan with what its disk says: first of all where it does not fit, else at the end."""
    if observed.fits:
        return View(title=page.title, sections=(*page.sections, observed.section))
    instead = Section(
        title=NEXT,
        lines=("Not apply: it would refuse this plan.",),
        commands=observed.section.commands,
    )
    return View(title=page.title, sections=(observed.section, *with_next(page, instead).sections))


def _begun(plan: Plan) -> bool:
    """Whether apply left a folder of this plan; what it needs is then another question."""
    name = private_folder(plan.plan_id)
    folders = [target.folder for target in targets_of(plan)]
    return any(os.path.lexists(os.path.join(plan.log_dir, folder, name)) for folder in folders)
