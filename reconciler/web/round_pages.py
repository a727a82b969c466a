"""Rounds as a list, and a page of each: what it did, why jobs waited, what is proven of it, and how long each phase took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response

from reconciler.analysis.reports.plain_text import plain_of
from reconciler.analysis.reports.proof import proof_of
from reconciler.analysis.reports.step_words import step_line
from reconciler.api.cursors import CURSOR_MAX, cursor_of, number_of
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.control.metrics import reason_code
from reconciler.protocols.rounds import RoundRecord
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import page
from solver.plan.plan import Inadmissible, Step, Verdict, Waits

PAGE: Final = 50
STEPS_MAX: Final = 300


class RoundPages:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/rounds", self.rounds)
        self.router.add_api_route("/rounds/{number}", self.round)

    def rounds(self, request: Request, cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "") -> Response:
        """The newest rounds, page by page."""
        # One more than wanted says whether there is another page.
        found = self._services.history.rounds(PAGE + 1, number_of(cursor))
        older = f"/rounds?cursor={cursor_of(found[PAGE - 1].number)}" if len(found) > PAGE else ""
        return page(request, "rounds.html", rounds=found[:PAGE], older=older, is_first=not cursor)

    def round(self, number: Annotated[int, Path(ge=1, lt=2**63)], request: Request) -> Response:
        """One round."""
        try:
            record = self._services.history.round(number)
        except KeyError as error:
            raise RequestRefusedError(404, "unknown-round", f"There is no round {number}.") from error
        narrow = record.narrow[-1] if record.narrow else None
        steps: tuple[Step, ...] = narrow.steps if narrow is not None else record.plan.steps
        certificate = record.plan.certificate
        return page(
            request,
            "round.html",
            number=number,
            record=narrow or record,
            base=narrow.base if narrow is not None else 0,
            steps=[step_line(step).split(maxsplit=1) for step in steps[:STEPS_MAX]],
            step_count=len(steps),
            waiting=() if narrow is not None else _counted(record.plan.verdicts),
            proven=_proven(record) if narrow is None and certificate.stage != "none" else "",
        )


def _proven(record: RoundRecord) -> str:
    return plain_of(proof_of(record.plan.certificate))


def _counted(verdicts: Iterable[Verdict]) -> list[tuple[str, int, str]]:
    """Of jobs that wait or can never run: their most telling reasons by code, how many have each, and one as it is said."""
    counts, examples = Counter[str](), dict[str, str]()
    for verdict in verdicts:
        if isinstance(verdict, Waits | Inadmissible) and verdict.reasons:
            code = reason_code(verdict)
            counts[code] += 1
            examples.setdefault(code, f"{verdict.job}: {verdict.reasons[0]}")
    return [(code, number, examples[code]) for code, number in counts.most_common()]
