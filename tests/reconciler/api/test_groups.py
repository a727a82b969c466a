"""Arrays and pipelines over HTTP, where it is not the command line that asks."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.client import ApiError, Client
from reconciler.control.control import LEASE
from reconciler.lifecycle.jobs.containers import WITH_CONTAINERS
from reconciler.lifecycle.jobs.throttle import Throttled
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.backend import Unstartable
from solver.model.cluster import NodeName
from solver.model.document import encode
from solver.model.node_sets import NodeSet
from solver.model.workload import Container, Dependency, JobArray, JobName
from tests.reconciler.api.conftest import NOW, Site, spec


def document(name: str = "sweep", **more: object) -> bytes:
    own = msgspec.structs.replace(spec(), **more)
    return encode({"apiVersion": "quorate.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": own})


ARRAY = document(array=JobArray("0-2", 1))


def refused(code: str, call: object, *arguments: object) -> ApiError:
    with pytest.raises(ApiError) as error:
        call(*arguments)  # type: ignore[operator]
    assert error.value.problem.code == code
    return error.value


def test_an_array_is_accepted_under_its_owners_name_and_wakes_the_loop(site: Site, client: Client) -> None:
    group = client.submit_group(ARRAY, "key")
    assert (group.name, group.kind, group.user, group.max_running) == ("sweep", "array", "alice", 1)
    assert group.counts == {"queued": 3}
    assert [(job.name, job.index, job.code) for job in group.jobs] == [
        ("sweep-0", 0, 0),
        ("sweep-1", 1, 0),
        ("sweep-2", 2, 0),
    ]
    assert client.group("sweep") == group == client.submit_group(ARRAY, "key")
    assert site.woken == 2
    job = client.job("sweep-1")
    element = job.array
    assert element is not None
    assert isinstance(job.block, Throttled), "it is the turn of the first"
    assert (element.id, element.index, element.count, element.max_running) == ("sweep", 1, 3, 1)


def test_jobs_and_groups_have_doors_of_their_own(site: Site, client: Client) -> None:
    assert refused("is-an-array", client.submit_document, ARRAY).status == 422
    assert refused("no-group", client.submit_group, document()).status == 422
    assert site.store.jobs.jobs() == ()


def test_an_unknown_group_is_not_found(client: Client) -> None:
    client.submit(JobName("job"), spec())
    for call in (client.group, client.cancel_group):
        assert refused("unknown-group", call, "job").status == 404


def test_a_job_depends_on_what_is_there(client: Client) -> None:
    after = msgspec.structs.replace(spec(), depends_on=(Dependency(JobName("sweep")),))
    error = refused("unknown-dependency", client.submit, JobName("after"), after)
    assert (error.status, error.problem.fix) == (422, "Submit what it depends on first.")
    client.submit_group(ARRAY)
    assert client.submit(JobName("after"), after).spec.depends_on == after.depends_on


def test_no_job_depends_on_itself(client: Client) -> None:
    itself = msgspec.structs.replace(spec(), depends_on=(Dependency(JobName("train")),))
    error = refused("depends-on-itself", client.submit, JobName("train"), itself)
    assert (error.status, error.problem.fix) == (422, "Name another job in dependsOn, or none.")
    assert "train depends on itself" in str(error)
    array = document("sweep", array=JobArray("0-2"), depends_on=(Dependency(JobName("sweep")),))
    assert refused("depends-on-itself", client.submit_group, array).status == 422


def test_a_job_may_depend_on_an_earlier_one_of_its_name(site: Site, client: Client) -> None:
    client.submit(JobName("train"), spec())
    epoch = site.store.ledger.lead("loop", NOW, LEASE)
    site.store.jobs.finish(epoch, JobName("train"), JobOutcome("succeeded", NOW, 0))
    again = msgspec.structs.replace(spec(), depends_on=(Dependency(JobName("train")),))
    second = client.submit(JobName("train"), again)
    assert (second.name, second.spec.depends_on) == ("train#2", again.depends_on)


def test_a_name_is_a_jobs_or_a_groups(client: Client) -> None:
    client.submit_group(ARRAY)
    assert refused("job-exists", client.submit, JobName("sweep"), spec()).status == 409
    assert refused("job-exists", client.submit_group, ARRAY, "other").status == 409


def test_what_is_too_large_is_refused(client: Client) -> None:
    long = document("x" * 61, array=JobArray("0-99"))
    assert refused("unfit", client.submit_group, long).status == 422


def test_trying_needs_no_key_and_keeps_nothing(site: Site, client: Client) -> None:
    trials = client.test(ARRAY)
    assert [trial.admissible for trial in trials.items] == [True, True, True]
    assert [len(trial.tasks) for trial in trials.items] == [1, 0, 0]
    assert site.store.jobs.tallies([JobName("sweep"), JobName("sweep-0")]) == {}


def test_a_trial_of_a_job_in_a_container_goes_where_those_run(site: Site, client: Client) -> None:
    boxed = document(container=Container("registry.example.org/train:1"))
    site.node_sets = (NodeSet(WITH_CONTAINERS, (NodeName("n2"),)),)
    (trial,) = client.test(boxed).items
    assert [task.node for task in trial.tasks] == ["n2"]
    site.node_sets = (NodeSet(WITH_CONTAINERS, ()),)
    (trial,) = client.test(boxed).items
    assert "on the 0 nodes that it may be on (with-containers)" in " ".join(trial.words)


def test_what_could_not_begin_is_refused_at_every_door(site: Site, client: Client) -> None:
    site.lacks = Unstartable("unknown-secret", "there is no secret token", "Ask for it.")
    for call, asked in (
        (client.submit_document, document()),
        (client.submit_group, ARRAY),
        (client.test, document()),
    ):
        error = refused("unknown-secret", call, asked)
        assert (error.status, error.problem.fix) == (422, "Ask for it.")
        assert "could not begin: there is no secret token." in str(error)
    assert client.jobs().items == ()
