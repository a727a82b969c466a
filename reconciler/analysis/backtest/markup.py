"""HTML and SVG built as a tree, so that no name of a queue or policy becomes markup: text is escaped as it is written."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

Child = Element | str


def tag(name: str, /, *children: Child, **attributes: str | float) -> Element:
    """An element. Attributes are written as in HTML, `class_` for `class` and a dash for every other underscore."""
    element = Element(name, {_attribute(key): _value(value) for key, value in attributes.items()})
    for child in children:
        _append(element, child)
    return element


def table(caption: str, headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Element:
    """A table; the first cell of each row is its heading."""
    head = tag("thead", tag("tr", *(tag("th", heading, scope="col") for heading in headings)))
    body = tag("tbody", *(_row(list(cells)) for cells in rows))
    return tag("div", tag("table", tag("caption", caption), head, body), class_="scroll", tabindex="0")


def html(element: Element) -> str:
    """The element as HTML text."""
    return tostring(element, encoding="unicode", method="html")


def _row(cells: list[str]) -> Element:
    return tag("tr", tag("th", cells[0], scope="row"), *(tag("td", cell) for cell in cells[1:]))


def _append(element: Element, child: Child) -> None:
    if isinstance(child, Element):
        element.append(child)
    elif len(element):
        element[-1].tail = (element[-1].tail or "") + legible(child)
    else:
        element.text = (element.text or "") + legible(child)


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return legible(value) if isinstance(value, str) else f"{value:.5g}"


def legible(text: str) -> str:
    """Without control characters, most of which HTML can't hold, and without those that reverse what is read."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
