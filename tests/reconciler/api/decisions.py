"""What users ask for that is kept with an event; run as a process, it is killed beside each of these events.

`python -m tests.reconciler.api.decisions STORE FOLDER` prints a line for each: what was asked, at which moment, and how it ended.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from reconciler.api.authorisation import Authorisation
from reconciler.api.group_routes import GroupRoutes
from reconciler.api.intervention_requests import InterventionRequests
from reconciler.api.job_requests import JobRequests, JobVerb
from reconciler.api.payloads import InterventionAsked
from reconciler.api.submitter import JobSubmitter
from reconciler.model.intervention_record import Subject
from reconciler.model.job_groups import Batch, NewGroup, NewJob, Submission
from reconciler.model.job_record import ArrayElement
from reconciler.model.pipelines import NamedPipeline, PipelineJob, PipelineSpec
from reconciler.protocols.history import Event
from reconciler.store.history import SqlHistory
from reconciler.store.store import SqlStore, open_store
from solver.model.workload import JobName, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, Site, spec
from tests.reconciler.api.people import request_of

RUNS, WAITS, SUSPENDED, ARRAY = map(JobName, ("runs", "waits", "suspended", "array"))
NEW: Final = JobName("new")
MOMENTS: Final = ("before", "after")


class Decisions(Site):
    """Beside a store that is no file."""

    folder = Path()

    @property
    def secrets(self) -> Path:
        return self.folder


def prepare(store: SqlStore) -> None:
    """A job that runs, one that waits, one that is suspended, and an array."""
    for name in (RUNS, WAITS, SUSPENDED):
        store.jobs.submit(name, spec(), "ada", NOW, "")
    store.jobs.request_suspend(SUSPENDED, "ada")
    element = NewJob(JobName("array-0"), spec(), ArrayElement(ARRAY, 0, 1))
    store.jobs.submit_all(Batch((NewGroup(ARRAY, "array"),), (element,)), "ada", NOW, "")
    Site(store).bind(RUNS, TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,)))


def _submit(site: Site) -> None:
    JobSubmitter(site.services(), Authorisation(site.services())).take_in([Submission(NEW, spec(), "ada", NOW, "")])


def _submit_group(site: Site) -> None:
    authority = Authorisation(site.services())
    submitted = NamedPipeline(NEW, PipelineSpec((PipelineJob(JobName("first"), spec()),)))
    JobSubmitter(site.services(), authority).take_in_group(request_of(authority), submitted, "")


def _cancel_group(site: Site) -> None:
    authority = Authorisation(site.services())
    GroupRoutes(site.services(), authority).cancel(ARRAY, request_of(authority))


def _ask(verb: JobVerb, job: JobName, site: Site) -> None:
    JobRequests(site.services()).ask(verb, job, "ada")


def _hold(site: Site) -> None:
    asked = InterventionAsked(reason="a fan is loud", until="4h")
    InterventionRequests(site.services()).begin("hold", [Subject("queue", "team")], asked, "ada")


ASKED: Final[dict[str, tuple[Callable[[Site], None], str]]] = {
    "submit": (_submit, NEW),
    "submit a group": (_submit_group, NEW),
    "cancel a group": (_cancel_group, ARRAY),
    "cancel": (partial(_ask, "cancel", WAITS), WAITS),
    "suspend": (partial(_ask, "suspend", WAITS), WAITS),
    "resume": (partial(_ask, "resume", SUSPENDED), SUSPENDED),
    "requeue": (partial(_ask, "requeue", RUNS), RUNS),
    "hold": (_hold, "team"),
}
"""How it is asked, and the subject of its event."""


def main(where: str, folder: Path) -> None:
    """Ask for each, in a child that does not outlive the event."""
    for asked, (ask, _) in ASKED.items():
        for moment in MOMENTS:
            child = os.fork()
            if not child:
                _die(moment)
                site = Decisions(open_store(where if "://" in where else Path(where)))
                site.folder = folder
                ask(site)
                os._exit(0)
            print(asked, moment, os.WTERMSIG(os.waitpid(child, 0)[1]), sep="\t")


def _die(moment: str) -> None:
    record = SqlHistory.record_events

    def killed(history: SqlHistory, told: Iterable[Event]) -> None:
        if moment == "after":
            record(history, told)
        os.kill(os.getpid(), signal.SIGKILL)

    SqlHistory.record_events = killed  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
