"""Classes whose jobs start soon or are told "not now": with the reason and a time, and without a trace of the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from reconciler.api.guard import Guard
from reconciler.api.server import ApiServer
from reconciler.client import ApiError, Client
from solver.model.document import encode
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Dependency, Job, JobArray, JobName, JobSpec, TaskPlacement
from solver.policy.policy import PriorityClass, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, POLICY, TOKEN, Site, spec

HALF_AN_HOUR = Duration(1_800_000)

CLASSES = (
    PriorityClass("shell", start_within=Duration(0)),
    PriorityClass("soon", start_within=Duration(3_600_000)),
    PriorityClass("batch"),
)


def of(priority_class: str, gpus: int = 4, **more: object) -> JobSpec:
    asked = msgspec.structs.replace(spec(gpus, queue="other"), priority_class=priority_class)
    return msgspec.structs.replace(asked, **more)


@pytest.fixture
def holders() -> dict[str, Duration | None]:
    """How long what holds a whole node may still run; None: for ever. A test adds to it."""
    return {}


@pytest.fixture
def client(site: Site, holders: dict[str, Duration | None]) -> Iterator[Client]:
    """Of a server whose last round saw the holders run; a node has room for one of them."""
    site.policy = policy_of(POLICY.queues, priority_classes=CLASSES)

    def seen() -> Snapshot:
        running = [
            Job(
                JobName(name), NOW, of("batch"), "bob", "running", 1, NOW, time_limit=limit,
                placement=(TaskPlacement("worker", 0, node.name, tuple(gpu.id for gpu in node.gpus)),),
            )
            for node, (name, limit) in zip(NODES, holders.items(), strict=False)
        ]  # fmt: skip
        return snapshot_of(NOW, NODES, running)

    services = replace(site.services(), snapshot=seen)
    with ApiServer(services, Guard(TOKEN, user="alice")) as server, Client(server.url, TOKEN) as connected:
        yield connected


@pytest.fixture
def crowded(client: Client, holders: dict[str, Duration | None]) -> Client:
    """One node is free in half an hour, the other nobody knows when."""
    holders.update(first=HALF_AN_HOUR, second=None)
    return client


def refusal(client: Client, asked: JobSpec, key: str = "") -> ApiError:
    with pytest.raises(ApiError) as error:
        client.submit(JobName("late"), asked, key)
    assert (error.value.status, error.value.problem.code) == (409, "not-now")
    return error.value


def test_what_starts_at_once_is_taken(client: Client) -> None:
    assert client.submit(JobName("early"), of("shell")).state == "queued"


def test_what_would_wait_is_told_for_what_and_until_when_and_not_kept(crowded: Client, site: Site) -> None:
    problem = refusal(crowded, of("shell")).problem
    at = NOW.after(HALF_AN_HOUR)
    assert problem.detail.startswith("Not now: late would wait (")
    assert problem.detail.endswith("), and class shell takes only what starts at once.")
    assert f"earliest start {at}" in problem.detail
    assert f"Submit it again at {at}" in problem.fix
    assert problem.reasons
    assert not site.store.jobs.jobs()


def test_a_trial_says_that_it_would_be_refused(crowded: Client) -> None:
    body = {"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": "late"}}
    for known, words in (("shell", ("it would be refused: class shell takes only what starts at once",)), ("soon", ())):
        (trial,) = crowded.test(encode({**body, "spec": of(known)})).items
        assert trial.verdict is not None
        assert tuple(word for word in trial.words if "refused" in word) == words
        assert trial.is_taken == (not words)


def test_a_wait_within_the_time_is_taken(crowded: Client) -> None:
    assert crowded.submit(JobName("late"), of("soon")).state == "queued"


def test_a_wait_of_unknown_length_is_not(crowded: Client) -> None:
    both = msgspec.structs.replace(spec(3, replicas=2, queue="other"), priority_class="soon")
    assert "Submit it again later" in refusal(crowded, both).problem.fix


def test_other_classes_wait(crowded: Client) -> None:
    assert crowded.submit(JobName("late"), of("batch")).state == "queued"
    assert crowded.submit(JobName("later"), msgspec.structs.replace(of("batch"), priority_class="")).state == "queued"


def test_the_same_submission_again_is_answered_although_it_has_taken_the_room(
    client: Client, holders: dict[str, Duration | None]
) -> None:
    assert client.submit(JobName("one"), of("shell"), "key").name == "one"
    holders.update(one=None, two=None)
    assert client.submit(JobName("one"), of("shell"), "key").name == "one"
    refusal(client, of("shell"), "key")


def test_what_depends_on_others_is_taken(crowded: Client) -> None:
    crowded.submit(JobName("first"), of("batch"))
    after = of("shell", depends_on=(Dependency(JobName("first")),))
    assert crowded.submit(JobName("late"), after).state == "queued"


@pytest.mark.parametrize(("at_a_time", "is_taken"), [(2, True), (None, False)])
def test_of_an_array_those_count_that_may_run_at_a_time(client: Client, at_a_time: int | None, is_taken: bool) -> None:
    document = {"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": "sweep"}}
    body = encode({**document, "spec": of("shell", array=JobArray("0-2", at_a_time))})
    if is_taken:
        assert client.submit_group(body, "key").counts == {"queued": 3}
        assert client.submit_group(body, "key").counts == {"queued": 3}
    else:
        with pytest.raises(ApiError, match="Not now: sweep-2 would wait"):
            client.submit_group(body)
