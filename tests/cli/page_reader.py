"""Strict reader of a page: every tag is closed, nothing runs, nothing is fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr"}
RUNS_OR_FETCHES = {
    "script",
    "link",
    "iframe",
    "object",
    "embed",
    "img",
    "image",
    "base",
    "form",
    "use",
    "a",
    "video",
    "audio",
    "source",
    "foreignobject",
    "animate",
    "set",
}
FETCHING_ATTRIBUTES = {
    "src",
    "href",
    "xlink:href",
    "srcset",
    "action",
    "data",
    "poster",
    "background",
    "style",
}


class PageReader(HTMLParser):
    """What a page is made of, and every fault of it.

    Attributes:
        tags: names of all elements, in order.
        faults: what must not be.
        words: all text outside of ``style``, with what is said to a screen reader.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.faults: list[str] = []
        self.words: list[str] = []
        self.boxes: list[dict[str, str]] = []
        self._open: list[str] = []
        self._style = ""
        self.feed(page)
        self.close()
        if self._open:
            self.faults.append(f"never closed: {self._open}")
        self.faults += re.findall(r"(?i)url\(|@import|expression\(|https?:", self._style)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in RUNS_OR_FETCHES:
            self.faults.append(f"<{tag}>")
        for name, value in attributes:
            if name.startswith("on") or name in FETCHING_ATTRIBUTES:
                self.faults.append(f"{tag} {name}={value!r}")
            self.words.append(value or "")
        if tag == "rect":
            self.boxes.append({name: value or "" for name, value in attributes})
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes something else")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self._style += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.words)
