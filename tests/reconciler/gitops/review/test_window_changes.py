"""What a review says of windows that move, and of fields of queues, in words as well."""

from __future__ import annotations

import pytest

from reconciler.analysis.reports.paths import Paths
from reconciler.analysis.reports.queue_sections import document_sections, ending_sections, window_sections
from reconciler.gitops.review.comparison import review
from reconciler.model.review_findings import Review
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from tests.reconciler.gitops.review.test_comparison import HEAD, repository, side

NOW = Instant.parse("2026-12-01T12:00:00Z")  # a Tuesday
RESERVATION = """Reservation
metadata: {name: demo}
spec: {from: "%s", until: "2026-12-04T18:00:00Z", queue: vision, nodes: [n1]}
"""


def nights(at: str, rule: str = "FREQ=DAILY;COUNT=20", guaranteed: int = 16) -> str:
    row = f"{{gpuType: H100, guaranteed: {guaranteed}}}"
    when = f'from: "2026-12-01T{at}:00+01:00", repeat: {{rule: "{rule}", duration: 10h, timeZone: Europe/Berlin}}'
    return f"{{quota: [{{gpuType: H100, guaranteed: 8}}], hours: [{{name: nights, {when}, quota: [{row}]}}]}}"


def compared(before: str, after: str, **more: tuple[str, str]) -> Review:
    files = [
        repository(3, vision=spec) | {f"policies/{name}.yaml": HEAD + texts[at] for name, texts in more.items()}
        for at, spec in enumerate((before, after))
    ]
    base, head = side("base", files[0]), side("head", files[1])
    return review(snapshot_of(NOW, base.compiled.nodes, ()), base, head, None)


def rows(found: Review) -> list[str]:
    (section,) = window_sections(found, str)
    return [" | ".join("".join(map(_word, cell)) for cell in row) for row in section.rows]


def _word(piece: object) -> str:
    return getattr(piece, "text", None) or str(piece)


def lines(found: Review, *names: str) -> list[str]:
    sections = document_sections(found, Paths({name: (name,) for name in names}))
    return ["".join(map(_word, line[0])) for section in sections for line in section.rows]


def test_windows_that_are_the_same_are_not_told() -> None:
    assert compared(nights("20:00"), nights("20:00")).windows == ()


def test_hours_that_begin_later_are_told_night_by_night() -> None:
    found = compared(nights("20:00"), nights("22:00", guaranteed=24))
    assert len(found.windows) == 7
    assert rows(found)[0] == (
        "queue vision, hours nights | 2026-12-01T19:00:00Z → 2026-12-01T21:00:00Z | 2026-12-02T05:00:00Z → "
        "2026-12-02T07:00:00Z | guaranteed 16 H100 → guaranteed 24 H100"
    )
    assert "queue vision: hours[nights] quota[H100] guaranteed 16 → 24" in lines(found, "vision")


def test_nights_that_are_gone_and_a_reservation_that_moves() -> None:
    demo = (RESERVATION % "2026-12-03T08:00:00Z", RESERVATION % "2026-12-03T10:00:00Z")
    weekdays = "FREQ=WEEKLY;COUNT=20;BYDAY=MO,TU,WE,TH,FR"
    assert rows(compared(nights("20:00"), nights("20:00", weekdays), demo=demo)) == [
        "Reservation demo | 2026-12-03T08:00:00Z → 2026-12-03T10:00:00Z | 2026-12-04T18:00:00Z | n1 for queue vision",
        *(
            f"queue vision, hours nights | 2026-12-0{day}T19:00:00Z | 2026-12-0{day + 1}T05:00:00Z | "
            "removed: guaranteed 16 H100"
            for day in (5, 6)
        ),
    ]


def test_hours_that_are_new() -> None:
    found = compared("{quota: [{gpuType: H100, guaranteed: 8}]}", nights("20:00", "FREQ=DAILY;COUNT=1"))
    assert rows(found) == [
        "queue vision, hours nights | 2026-12-01T19:00:00Z | 2026-12-02T05:00:00Z | new: guaranteed 16 H100"
    ]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("preemptWithin: never", "preempt within never"),
        ("preemptAfter: 10m", "preempt after 10m"),
        ("reclaimedFor: guaranteed", "reclaimed for guaranteed"),
        ("reclaimBelow: 100", "reclaim below 100"),
        ("quota: [{gpuType: H100, guaranteed: 8, shared: true}]", "shared true H100"),
    ],
)
def test_fields_of_a_queue_that_change_are_named(field: str, said: str) -> None:
    plain_quota = "quota: [{gpuType: H100, guaranteed: 8}]"
    found = compared(f"{{{plain_quota}}}", f"{{{field}}}" if "quota" in field else f"{{{plain_quota}, {field}}}")
    assert lines(found, "vision") == [f"queue vision: {said} (was not set)"]


def test_a_rule_that_ends_soon_is_told_of_the_head() -> None:
    """A hundred nights that began in September, of which the last is in December."""
    long_ago = nights("20:00", "FREQ=DAILY;COUNT=100").replace("2026-12-01T", "2026-09-05T")
    found = compared(nights("20:00"), long_ago)
    (section,) = ending_sections(found)
    assert ["".join(map(_word, cell)) for (cell,) in section.rows] == [
        "the last window of hours nights of queue vision ends at 2026-12-14T06:00:00Z"
    ]
    assert [one.code for one in found.ending] == ["windows-end-soon"]
    assert compared(long_ago, nights("20:00")).ending == ()
