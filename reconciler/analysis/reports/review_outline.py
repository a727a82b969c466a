"""A review as an outline: what changes in one sentence, whether that is good news, then all of it in the order of its weight."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.analysis.reports.fates import Fates, fates
from reconciler.analysis.reports.job_sections import (
    changed_sections,
    idle_sections,
    lost_sections,
    requeued_sections,
    stranded_sections,
    sum_of,
    unchanged_sections,
    unrestartable_sections,
)
from reconciler.analysis.reports.outline import Outline, ReportSection, UntrustedText, When, Words, sentences
from reconciler.analysis.reports.paths import Paths
from reconciler.analysis.reports.proof import proof_of
from reconciler.analysis.reports.queue_sections import (
    converging_sections,
    device_sections,
    document_sections,
    ending_sections,
    orphaned_sections,
    queue_sections,
    window_sections,
)
from reconciler.model.review_findings import Ahead, Review, RevisionReviewed
from solver.plan.reason import count

_COMMIT_CHARACTERS = 12
"""Of a commit: what Git's own log shows of a repository of millions of objects."""


def outline_of(found: Review, paths: Paths, when: When) -> Outline:
    """All that a review says; `when` writes points in time."""
    sorted_jobs = fates(found)
    sections = (
        *_breached(found),
        *document_sections(found, paths),
        *window_sections(found, when),
        *ending_sections(found),
        *lost_sections(found, sorted_jobs, paths, when),
        *orphaned_sections(found, paths),
        *stranded_sections(found, paths),
        *unrestartable_sections(found, paths),
        *requeued_sections(found, paths),
        *idle_sections(found, paths, when),
        *converging_sections(found, paths, when),
        *queue_sections(found, paths),
        *changed_sections(found, sorted_jobs, paths),
        *device_sections(found),
        *unchanged_sections(found, sorted_jobs, paths),
    )
    refused = bool(found.breaches)
    return Outline(
        _headline(found, sorted_jobs), (_verdict(found, sorted_jobs),), refused, sections, _footer(found, when)
    )


def _headline(found: Review, sorted_jobs: Fates) -> Words:
    """Jobs that are worse or better off, the worst first, and nothing of what stays as it is."""
    said = [*_effects(found, sorted_jobs), *_requeued(found), *_warned(found)] or ["no job fares differently"]
    return UntrustedText(_named(found.base)), " → ", UntrustedText(_named(found.head)), ": ", "; ".join(said)


def _requeued(found: Review) -> Iterator[str]:
    if found.requeued:
        comes = "comes" if len(found.requeued) == 1 else "come"
        yield f"{count(len(found.requeued), 'job')} {comes} to be in another queue"


def _warned(found: Review) -> Iterator[str]:
    caught = [one for one in found.idle if not one.already]
    if caught:
        yield f"{count(len(caught), 'job')} would be warned for idle GPUs"


def _named(side: RevisionReviewed) -> str:
    """As it was asked for; CI asks for commits, which are told short."""
    return side.commit[:_COMMIT_CHARACTERS] if side.name == side.commit else side.name


def _effects(found: Review, jobs: Fates) -> Iterator[str]:
    if found.breaches:
        yield f"{count(len(found.breaches), 'guardrail')} broken"
    for one, many, losing in (
        ("is evicted", "are evicted", jobs.evicted),
        ("shrinks", "shrink", jobs.shrunk),
        ("moves", "move", jobs.moved),
    ):
        if losing:
            yield f"{count(len(losing), 'job')} {one if len(losing) == 1 else many} ({sum_of(losing)})"
    if found.newly_broken:
        yield f"{count(len(found.newly_broken), 'quota')} set below what is held"
    if found.orphaned:
        yield f"{count(len({change.queue for change in found.orphaned}), 'queue')} removed while in use"
    if found.stranded:
        runs = "runs" if len(found.stranded) == 1 else "run"
        yield f"{count(len(found.stranded), 'job')} {runs} on nodes that are removed"
    if found.newly_unrestartable:
        runs = "that runs" if len(found.newly_unrestartable) == 1 else "that run"
        yield f"{count(len(found.newly_unrestartable), 'job')} {runs} could never start again"
    for one, many, affected in (
        ("no longer starts now", "no longer start now", jobs.starts_no_more),
        ("becomes inadmissible", "become inadmissible", jobs.never),
        ("waits longer", "wait longer", jobs.later),
        ("starts now that would not", "start now that would not", jobs.starts),
        ("becomes admissible and waits", "become admissible and wait", jobs.admitted),
        ("waits shorter", "wait shorter", jobs.sooner),
        ("that runs is spared", "that run are spared", jobs.spared),
    ):
        if affected:
            yield f"{count(len(affected), 'job')} {one if len(affected) == 1 else many}"


def _verdict(found: Review, jobs: Fates) -> str:
    if found.breaches:
        return f"Refused: the change breaks {count(len(found.breaches), 'guardrail')}."
    if jobs.evicted or jobs.shrunk or jobs.moved:
        return "Running work is given up for the change."
    worse = _worse_off(found, jobs)
    if worse:
        return f"No running work is given up; {worse}."
    if found.newly_broken:
        return "No job is worse off as far as was played ahead; a quota is set below what is held."
    if not found.has_changes:
        return "The change has no effect: same policy, same inventory."
    if found.base.inventory != found.head.inventory and not any("NodePool" in one.document for one in found.documents):
        return "Nodes have changed places within their pools. No job is worse off."
    return "No job is worse off."


def _worse_off(found: Review, jobs: Fates) -> str:
    """The worst that happens to jobs, where none gives anything up."""
    if found.orphaned:
        return "a queue is removed that is in use"
    if found.stranded:
        return "nodes are removed on which jobs run"
    if found.newly_unrestartable:
        return "some jobs that run could never start again"
    if jobs.never:
        return "some jobs can not start at all any more"
    return "some jobs wait longer" if jobs.starts_no_more or jobs.later else ""


def _breached(found: Review) -> Iterator[ReportSection]:
    if found.breaches:
        lines: list[Words] = [
            (
                UntrustedText(breach.guardrail),
                ": ",
                UntrustedText(breach.message),
                *_at(breach.origin),
                ". ",
                UntrustedText(breach.fix),
            )
            for breach in found.breaches
        ]
        yield sentences("Guardrails broken", lines)


def _at(origin: str) -> Words:
    return (" (", UntrustedText(origin), ")") if origin else ()


def _footer(found: Review, when: When) -> tuple[Words, ...]:
    return (
        *(
            (
                UntrustedText(_named(side)),
                " (",
                UntrustedText(side.commit[:_COMMIT_CHARACTERS]),
                "): ",
                *proof_of(side.certificate),
            )
            for side in (found.base, found.head)
        ),
        (
            f"Snapshot of {when(found.time)} (",
            UntrustedText(found.snapshot.removeprefix("sha256:")[:_COMMIT_CHARACTERS]),
            "). ",
            _played(found.ahead, when),
        ),
    )


def _played(ahead: Ahead, when: When) -> str:
    rounds = f"{ahead.rounds_before} and {ahead.rounds_after} rounds were played ahead, until {when(ahead.until)}"
    cut = "" if ahead.complete else ", where the limit of work cut them off"
    ends = "ends" if ahead.endless == 1 else "end"
    endless = f"; nothing says when {count(ahead.endless, 'running job')} {ends}" if ahead.endless else ""
    return f"{rounds}{cut}, with no new jobs{endless}."
