"""One page of the pages over log directories of several brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from krepair.plan.view import Section, View


def of_each(title: str, brokers: Sequence[str], views: Sequence[View]) -> View:
    """The pages one below the other, each title with its broker; of one directory its own page.

    Args:
        title: of the whole page.
        brokers: whose the pages are, in their order.
        views: one for each log directory.
    """
    if len(views) == 1:
        return views[0]
    sections = (
        section for broker, view in zip(brokers, views, strict=True) for section in _named(broker, view)
    )
    return View(title=title, sections=tuple(sections))


def _named(broker: str, view: View) -> Iterator[Section]:
    for section in view.sections:
        if section.title and not section.empty:
            yield replace(section, title=f"Broker {broker or 'unknown'}: {section.title}")
        else:
            yield section
