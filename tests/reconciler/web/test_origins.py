"""A figure, a queue and a reason lead to the line in Git that says so."""

from __future__ import annotations

import html
import re

import pytest

from reconciler.web.origins import Piece, document_link, linked
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Queue, Quota, policy_of
from tests.reconciler.api.conftest import H100, spec
from tests.reconciler.web.conftest import Console


@pytest.mark.parametrize(
    ("origin", "link"),
    [
        ("policies/a.yaml:8", "/policy/documents/policies/a.yaml#L8"),
        ("policies/a.yaml:8:3", "/policy/documents/policies/a.yaml#L8"),
        ("policies/a.yaml", "/policy/documents/policies/a.yaml"),
        ("policies/a b#?.yaml:1", "/policy/documents/policies/a%20b%23%3F.yaml#L1"),
        ("javascript:alert(1)", "/policy/documents/javascript%3Aalert%281%29"),
        ("", ""),
    ],
)
def test_a_place_has_an_address(origin: str, link: str) -> None:
    assert document_link(origin) == link


def test_only_places_that_a_reason_states_become_links() -> None:
    words = "queue vision holds 8 of max 8 (p/v.yaml:8); job (p/x.yaml:1) is (p/v.yaml:8)"
    link = document_link("p/v.yaml:8")
    assert linked(words, {"p/v.yaml:8", ""}) == (
        Piece("queue vision holds 8 of max 8 "),
        Piece("(p/v.yaml:8)", link),
        Piece("; job (p/x.yaml:1) is "),
        Piece("(p/v.yaml:8)", link),
    )
    assert linked(words, {""}) == (Piece(words),)


def test_queues_and_their_figures_lead_to_their_lines(console: Console) -> None:
    six = MilliGpu.gpus(6)
    console.site.policy = policy_of(
        (
            Queue(QueueName("org"), origin="policies/org.yaml:2"),
            Queue(
                QueueName("team"), QueueName("org"), (Quota(H100, max=six, origin="policies/t.yaml:7"),),
                origin="policies/t.yaml:3",
            ),
        )
    )  # fmt: skip
    with console.browser() as browser:
        text = browser.get("/queues").text
    assert re.findall(r'<a href="/policy/documents/([^"]+)">([^<]+)</a>', text) == [
        ("policies/org.yaml#L2", "org"),
        ("policies/t.yaml#L3", "team"),
        ("policies/t.yaml#L7", "6"),  # Its guarantee is a share of its parent's: no line says it.
    ]


def test_a_reason_leads_to_its_line(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of(
        (Queue(QueueName("team"), None, (Quota(H100, max=MilliGpu.gpus(2), origin="policies/t.yaml:7"),)),)
    )
    monkeypatch.setattr("tests.reconciler.api.conftest.POLICY", policy)
    for name in ("first", "second"):
        console.site.store.jobs.submit(JobName(name), spec(2), "ada", console.clock.now(), name)
    with console.browser() as browser:
        text = html.unescape(browser.get("/jobs/second").text)
    assert '<a href="/policy/documents/policies/t.yaml#L7">(policies/t.yaml:7)</a>' in text
