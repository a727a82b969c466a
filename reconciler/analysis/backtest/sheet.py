"""The sheet that every report is written on: one HTML file with its style in it, no script, and nothing that is fetched."""

from __future__ import annotations

from importlib.resources import files
from xml.etree.ElementTree import Element

from reconciler.analysis.backtest.markup import html, tag
from reconciler.analysis.backtest.plots import patterns


def sheet(title: str, *content: Element) -> str:
    """The whole file. Pure: the same content is the same bytes."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", _style()),
    )
    body = tag("body", patterns(), tag("main", tag("h1", title), *content))
    return "<!DOCTYPE html>\n" + html(tag("html", head, body, lang="en")) + "\n"


def _style() -> str:
    # In one line: a line break is no character that text of a page may have (markup.legible).
    return " ".join((files(__package__) / "page.css").read_text("utf-8").split())
