"""What Git declares and what the backend reports, joined."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.control.observation import join
from solver.model.cluster import Gpu, Node
from solver.model.workload import JobName
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.control.plane import Site

DECLARED = msgspec.structs.replace(NODES[0], rack="r1")


def seen(**changed: object) -> Node:
    return msgspec.structs.replace(NODES[0], rack="elsewhere", **changed)


def test_git_says_what_a_node_is() -> None:
    assert join(DECLARED, seen()) == DECLARED


@pytest.mark.parametrize(
    ("observed", "ready", "cordoned"),
    [(seen(), True, False), (seen(ready=False), False, False), (seen(cordoned=True), True, True), (None, False, False)],
)
def test_the_backend_says_how_it_is(observed: Node | None, ready: bool, cordoned: bool) -> None:
    joined = join(DECLARED, observed)
    assert (joined.ready, joined.cordoned) == (ready, cordoned)


def test_what_git_cordons_stays_so() -> None:
    assert join(msgspec.structs.replace(DECLARED, cordoned=True), seen()).cordoned


def test_a_gpu_that_is_sick_or_missing_is_not_healthy() -> None:
    sick, *others = NODES[0].gpus
    observed = seen(gpus=(Gpu(sick.id, sick.index, healthy=False), *others[:-1]))
    assert [gpu.healthy for gpu in join(DECLARED, observed).gpus] == [False, True, True, False]


def test_what_is_as_declared_is_the_declared_object() -> None:
    """Of 12,500 nodes nearly all are: a snapshot, and the one before, have no copies of them."""
    assert join(DECLARED, seen()) is DECLARED
    joined = join(DECLARED, seen(), unfit={DECLARED.gpus[0].id})
    assert [gpu.healthy for gpu in joined.gpus] == [False, True, True, True]
    assert all(one is other for one, other in zip(joined.gpus[1:], DECLARED.gpus[1:], strict=True))


def test_jobs_that_are_alike_share_what_they_ask_for(site: Site) -> None:
    for name in ("a", "b"):
        site.submit(name, ("sleep", "forever"))
    first, second = site.one_pass().snapshot.jobs
    assert first.spec is second.spec


def test_a_job_is_shown_with_what_it_holds(site: Site) -> None:
    site.submit("stays", ("sleep", "forever"))
    snapshot = site.one_pass().snapshot
    assert [(job.name, job.phase, job.attempt) for job in snapshot.jobs] == [("stays", "pending", 0)]
    snapshot = site.one_pass().snapshot
    (job,) = snapshot.jobs
    assert (job.name, job.phase, job.attempt) == (JobName("stays"), "running", 1)
    assert job.placement == site.store.ledger.claims()[0].tasks
    assert job.started_at is not None
