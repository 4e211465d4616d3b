"""Whether a plan fits on the disk: the space and the files that its apply needs on top, against what is free now.

It is observed when ``plan`` is printed, and when ``apply`` begins. It is never part of the plan file, which stays the
same bytes for the same directory, options and clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from krepair.logdir.log_dirs import configured_id, why_of_another_broker
from krepair.logdir.space import Space, read_space
from krepair.ops.need import need_of_all
from krepair.ops.not_mended import not_mended
from krepair.ops.removable import Way
from krepair.ops.show import show_view
from krepair.ops.target import targets_of
from krepair.ops.way_out import still_short_after, way_out, why_reserve_does_not_do
from krepair.options import Options
from krepair.plan.model import PartitionPlan, Plan
from krepair.plan.render import NEXT, next_sections, with_next
from krepair.plan.view import Section, View, bytes_text, bytes_words, count_text


def shortage(
    plan: Plan, targets: Sequence[PartitionPlan], space: Space, at: Options | None = None
) -> Way | None:
    """Why changes do not fit, with the figures, and what to do instead; None if they fit."""
    need = need_of_all(plan, targets)
    if need.fits(space):
        return None
    if need.bytes > space.free_bytes:
        what = (
            f"{bytes_words(need.bytes)} on top while it is applied, {bytes_text(space.free_bytes)} are free"
        )
    else:
        files = count_text(need.files_on(links_are_files=space.links_are_files), "new file")
        what = f"{files} while it is applied, the file system has room for {space.free_inodes:,}"
    way = way_out(plan, targets, space, at)
    return Way(f"{plan.log_dir}: the plan needs {what}; {way.text}", way.command, way.then)


def planned_view(plan: Plan, path: str, options: Options | None = None) -> View:
    """The page of a plan that was made just now: with what is free on its disk. First where it does not fit.

    Args:
        plan: the plan.
        path: of its file.
        options: as typed; ``use_reserved`` counts, and where the work is done.

    Raises:
        RefusedError: ``--use-reserved``, and it is not known what is reserved.
    """
    place = _scratch_words(options)
    page, targets = show_view(plan, path, place), targets_of(plan)
    before = (_of_another_broker(plan, options), not_mended(plan))
    page = View(title=page.title, sections=(*(one for one in before if not one.empty), *page.sections))
    if not targets:
        return page
    reserved = options is not None and options.use_reserved
    try:
        space = read_space(plan.log_dir, use_reserved=reserved)
    except OSError:
        return page  # the plan is made; what cannot be looked at, apply says
    observed, fits = fit_section(plan, targets, space, options)
    if not fits:
        instead = Section(
            title=NEXT, lines=("Not apply: it would refuse this plan.",), commands=observed.commands[:1]
        )
        return View(title=page.title, sections=(observed, *with_next(page, instead).sections))
    if reserved:
        page = with_next(page, *next_sections(plan, path, (*place, "--use-reserved")))
    return View(title=page.title, sections=(*page.sections, observed))


def _of_another_broker(plan: Plan, options: Options | None) -> Section:
    """That the settings of a plan are those of another broker; empty where nothing shows it."""
    title, config = "The configuration is of another broker", None if options is None else options.config
    text = why_of_another_broker(config, plan.log_dir, plan.broker_id)
    if not text:
        return Section(title=title)
    whose = f"The settings below are those of broker {configured_id(config)}"
    return Section(title=title, lines=(f"{text}. {whose}. Is the right file in --config?",))


def _scratch_words(options: Options | None) -> tuple[str, ...]:
    """Where keys and hashes go that do not fit into memory: the verbs that follow need the same place."""
    return ("--scratch", options.scratch) if options is not None and options.scratch else ()


def fit_section(
    plan: Plan, targets: Sequence[PartitionPlan], space: Space, options: Options | None = None
) -> tuple[Section, bool]:
    """The observation as a section of a page, and whether apply would go on; see ``planned_view``."""
    need = need_of_all(plan, targets)
    reserved = options is not None and options.use_reserved
    inodes = "" if space.free_inodes < 0 else f", and room for {count_text(space.free_inodes, 'file')}"
    whose = " for root" if reserved else ""
    files = need.files_on(links_are_files=space.links_are_files)
    needed = f"{bytes_text(need.bytes)}, for {count_text(files, 'file')}"
    lines = [
        f"Bytes free{whose} now: {bytes_text(space.free_bytes)}{inodes}.",
        f"Bytes needed on top while the plan is applied: {needed}.",
    ]
    refused = "It does NOT fit on the disk: apply will refuse it"
    if not need.fits(space):
        way = way_out(plan, targets, space, options)
        lines.append(f"{way.text[0].upper()}{way.text[1:]}.")
        return Section(title=refused, lines=tuple(lines), commands=way.commands), False
    if reserved:
        why = why_reserve_does_not_do(plan, targets)
        if why:
            way = way_out(plan, targets, space, options)
            lines += [f"{why}.", f"{way.text[0].upper()}{way.text[1:]}."]
            return Section(title=refused, lines=tuple(lines), commands=way.commands), False
        short = still_short_after(plan, targets)
        lines += [short] if short else []
    return Section(title="It fits on the disk", lines=tuple(lines)), True
