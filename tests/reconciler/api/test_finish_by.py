"""`finishBy` over the API: what can't be in time is refused, and a job that may come too late is told so."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.api.views import words_of
from reconciler.client import ApiError, Client
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, JobSpec, TaskPlacement
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Runs, Verdict, Waits
from solver.policy.policy import PriorityClass, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import POLICY, Site, spec
from tests.reconciler.api.test_groups import document

HOUR = 3_600_000
AT = Instant.parse("2027-01-01T12:00:00Z")


def hurried(by: Instant, hours: int | None) -> JobSpec:
    limit = None if hours is None else Duration(hours * HOUR)
    return msgspec.structs.replace(spec(), finish_by=by, time_limit=limit)


@pytest.mark.parametrize(
    ("hours", "left", "refused"),
    [
        (1, 2 * HOUR, ""),
        (3, 2 * HOUR - 1, "train may run for 3h, and 119m are left until"),
        (None, 2 * HOUR, ""),
        (None, -HOUR, "The finishBy of train, "),
    ],
)
def test_what_can_not_have_ended_by_then_is_refused(
    client: Client, site: Site, hours: int | None, left: int, refused: str
) -> None:
    by = site.services().clock.now().after(left)
    if not refused:
        client.submit(JobName("train"), hurried(by, hours))
        assert client.job("train").spec.finish_by == by
        return
    with pytest.raises(ApiError) as failed:
        client.submit(JobName("train"), hurried(by, hours))
    assert str(failed.value).startswith(refused)
    assert "rite a later finishBy." in str(failed.value)
    with pytest.raises(ApiError) as tried:
        client.test(document("train", finish_by=by, time_limit=hurried(by, hours).time_limit))
    assert str(tried.value) == str(failed.value)


def test_the_limit_of_its_class_counts(client: Client, site: Site) -> None:
    site.policy = policy_of(POLICY.queues, (PriorityClass("long", default_time_limit=Duration(8 * HOUR)),))
    by = site.services().clock.now().after(2 * HOUR)
    with pytest.raises(ApiError, match="train may run for 8h, and"):
        client.submit(JobName("train"), msgspec.structs.replace(hurried(by, None), priority_class="long"))


def test_what_was_submitted_in_time_is_answered_later_too(client: Client, site: Site) -> None:
    now = site.services().clock.now()
    client.submit(JobName("train"), hurried(now.after(2 * HOUR), 1), "key")
    assert client.submit(JobName("train"), hurried(now.after(-HOUR), 1), "key").name == "train"
    with pytest.raises(ApiError, match="has passed"):
        client.submit(JobName("other"), hurried(now.after(-HOUR), 1), "key")


@pytest.mark.parametrize(
    ("verdict", "late"),
    [
        (Waits(JobName("train"), spec().queue, (), EarliestStart(AT)), True),
        (Waits(JobName("train"), spec().queue, (), EarliestStart(AT.after(-HOUR))), False),
        (Waits(JobName("train"), spec().queue, ()), False),
        (None, False),
    ],
)
def test_a_job_that_may_come_too_late_is_told(client: Client, verdict: Verdict | None, late: bool) -> None:
    client.submit(JobName("train"), hurried(AT.after(HOUR), 2))
    said = [word for word in words_of(client.job("train"), verdict, ()) if "finishBy" in word]
    told = "it may end too late for its finishBy, 2027-01-01T13:00:00Z: it could start at 2027-01-01T12:00:00Z, and may run for 2h"
    assert said == ([told] if late else [])


def test_a_running_job_is_told_when_it_will_be_asked_to_leave(client: Client) -> None:
    client.submit(JobName("train"), spec())
    task = TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,))
    view = msgspec.structs.replace(client.job("train"), tasks=(task,))
    verdict = Runs(
        view.name, view.spec.queue, leaves_at=AT, reserved_for=JobName("reservation:night@2027-01-01T12:00:30Z")
    )
    assert words_of(view, verdict, NODES)[1] == (
        "it holds its devices until it is asked to leave at 2027-01-01T12:00:00Z: "
        "Reservation night@2027-01-01T12:00:30Z keeps them for others"
    )


def test_a_duration_counts_from_submission(client: Client, site: Site) -> None:
    within = msgspec.structs.replace(spec(), finish_within=Duration(2 * HOUR), time_limit=Duration(HOUR))
    client.submit(JobName("train"), within, "key")
    told = client.job("train")
    assert told.spec.to_finish_by(told.submitted_at) == told.submitted_at.after(2 * HOUR)
    assert (told.spec.finish_by, told.spec.finish_within) == (None, Duration(2 * HOUR))
    assert client.submit(JobName("train"), within, "key").name == "train"
    with pytest.raises(ApiError, match="other may run for 3h, and is to have ended within 2h"):
        client.submit(JobName("other"), msgspec.structs.replace(within, time_limit=Duration(3 * HOUR)))
