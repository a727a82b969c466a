"""A name on the command line: that of a job, or of an array or pipeline, which stands for all of its jobs."""

from __future__ import annotations

from typing import Literal

import msgspec

from reconciler.api.group_payloads import GroupView
from reconciler.api.payloads import JobView
from reconciler.cli.exits import ExitCode
from reconciler.cli.other_words import KIND_SHOWN_BY
from reconciler.client import ApiError, Client
from reconciler.model.job_record import TERMINAL
from solver.model.document import API_VERSION, Document

_NOT_FOUND = 404

Named = JobView | GroupView


class NamedList(Document, frozen=True, omit_defaults=False):
    """What `-o json` prints of several."""

    items: tuple[Named, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION


def find(client: Client, name: str) -> Named:
    """The newest job or group that is called so, or that of an id. Raises ApiError, that of the job where there is none."""
    job = client.newest(name)
    try:
        return client.job(job)
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        try:
            return client.group(job)
        except ApiError as no_group:
            raise (_no_job(error, name) if no_group.status == _NOT_FOUND else no_group) from no_group


def _no_job(error: ApiError, name: str) -> ApiError:
    """The same, with the command that shows what is meant where a kind of thing is named in place of a job."""
    command = KIND_SHOWN_BY.get(name)
    if command is None:
        return error
    return ApiError(
        error.status, msgspec.structs.replace(error.problem, fix=f"{name} are shown by `quorate {command}`.")
    )


def has_ended(view: Named) -> bool:
    """The job has, or every job of the group."""
    if isinstance(view, JobView):
        return view.outcome is not None
    return all(job.state in TERMINAL for job in view.jobs)


def exit_code_of(view: Named) -> int:
    """What a script should see: 0 where nothing has gone wrong, else the job's own code or 1; of a group the highest."""
    if isinstance(view, GroupView):
        return max(job.code for job in view.jobs)
    outcome = view.outcome
    if outcome is None or outcome.state == "succeeded":
        return ExitCode.OK
    return outcome.exit_code or ExitCode.ERROR


def counts_of(view: GroupView) -> str:
    """`3 running, 5 queued, 2 succeeded`."""
    return ", ".join(f"{number} {state}" for state, number in sorted(view.counts.items()))
