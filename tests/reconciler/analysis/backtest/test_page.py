"""The report in HTML: one whole file, nothing fetched, no script, and no name that becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec

from reconciler.analysis.backtest.page import page
from solver.model.workload import QueueName
from solver.policy.policy import Queue, policy_of
from tests.reconciler.analysis.backtest.backtests import LENT, SHARED, figures, simulation, traced

HOSTILE = "<script>alert(1)</script>"
VOID = {"meta"}


class Reader(HTMLParser):
    """Notes every element, and that all of them are closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def both() -> str:
    one, two = figures(LENT), msgspec.structs.replace(figures(SHARED), name="shared")
    return page(simulation(one, two))


def test_it_is_one_file_without_scripts_in_which_nothing_is_fetched() -> None:
    text = both()
    reader = read(text)
    assert {"script", "link", "img", "iframe", "object", "base"}.isdisjoint(tag for tag, _ in reader.elements)
    fetching = {"src", "href", "xlink:href", "srcset", "style"}
    assert all(fetching.isdisjoint(attributes) for _, attributes in reader.elements)
    assert not re.search(r"https?:|@import|url\((?!#hatch-\d\))|\bon\w+=", text)
    assert len(text) < 100_000
    assert text == both()


def test_every_plot_has_a_title_and_every_table_headings() -> None:
    reader = read(both())
    plots = [attributes for tag, attributes in reader.elements if tag == "svg" and attributes.get("role") == "img"]
    # Waits of one class, use under each policy, evictions under each, and fairness twice.
    assert len(plots) == 7
    assert all(attributes["aria-label"] for attributes in plots)
    names = [tag for tag, _ in reader.elements]
    assert names.count("table") == names.count("caption") == names.count("thead") > 4
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in reader.elements if tag == "th")


def test_it_has_colours_for_light_and_dark_and_lines_differ_by_more_than_colour() -> None:
    text = both()
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    drawn = {attributes["class"] for tag, attributes in read(text).elements if tag == "polyline"}
    assert drawn == {"line s0", "line s1"}
    assert ".line.s1 { stroke: var(--c1); stroke-dasharray" in text


def test_names_are_text_wherever_they_stand() -> None:
    queues = policy_of((Queue(QueueName(HOSTILE)), Queue(QueueName('"><svg onload=alert(1)>\u202e\x00'))))
    jobs = (traced("a", HOSTILE, 0, 1), traced("b", '"><svg onload=alert(1)>\u202e\x00', 0, 1))
    found = msgspec.structs.replace(figures(queues, jobs), name=HOSTILE, notes=(HOSTILE,))
    text = page(msgspec.structs.replace(simulation(found, found), source=HOSTILE, notes=(HOSTILE,)))
    reader = read(text)
    assert "script" not in {tag for tag, _ in reader.elements}
    assert not any("onload" in attributes for _, attributes in reader.elements)
    assert sum(HOSTILE in told for told in reader.texts) > 8
    assert not {"\u202e", "\x00"} & set(text)
