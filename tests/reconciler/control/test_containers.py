"""Jobs in containers are placed where agents say that those run, and wait, with a reason, where none does."""

from __future__ import annotations

import msgspec

from reconciler.model.facts import NodeFacts
from solver.model.cluster import NodeName
from solver.model.shape import Shape
from solver.model.workload import Container, JobName, JobSpec, QueueName, TaskGroup
from solver.plan.plan import Inadmissible
from solver.plan.refusals import NeverFits
from tests.reconciler.control.plane import Site

BOXED, PLAIN = JobName("boxed"), JobName("plain")


def tell(site: Site, **runs_containers: bool | None) -> None:
    now = site.clock.now()
    for node, containers in runs_containers.items():
        site.cluster.report(NodeFacts(NodeName(node), now, containers=containers), now)


def submit(site: Site, name: JobName, *, boxed: bool, tasks: int = 1) -> None:
    group = TaskGroup("worker", tasks, Shape(gpus=1))
    spec = JobSpec(QueueName("q"), (group,), command=("sleep", "forever"))
    if boxed:
        spec = msgspec.structs.replace(spec, container=Container("registry.example.org/train:1"))
    site.store.jobs.submit(name, spec, "ada", site.clock.now(), f"key-of-{name}")


def nodes_of(site: Site, job: JobName) -> list[str]:
    return [task.node for claim in site.store.ledger.claims() if claim.job == job for task in claim.tasks]


def reasons(site: Site, job: JobName) -> list[str]:
    (verdict,) = [known for known in site.one_pass().plan.verdicts if known.job == job]
    assert isinstance(verdict, Inadmissible)
    return [f"{type(reason).__name__}: {reason}" for reason in verdict.reasons]


def test_containers_go_where_they_run_and_others_go_anywhere(site: Site) -> None:
    tell(site, n1=False, n2=True)
    submit(site, BOXED, boxed=True, tasks=4)
    submit(site, PLAIN, boxed=False, tasks=4)
    site.until(BOXED, "running")
    site.until(PLAIN, "running")
    assert (nodes_of(site, BOXED), nodes_of(site, PLAIN)) == (["n2"] * 4, ["n1"] * 4)


def test_a_node_that_says_nothing_may_run_them(site: Site) -> None:
    tell(site, n1=False, n2=None)
    submit(site, BOXED, boxed=True)
    site.until(BOXED, "running")
    assert nodes_of(site, BOXED) == ["n2"]


def test_where_none_runs_the_job_says_so_and_starts_once_one_does(site: Site) -> None:
    tell(site, n1=False, n2=False)
    submit(site, BOXED, boxed=True)
    (reason,) = reasons(site, BOXED)
    assert reason.startswith(NeverFits.__name__), reason
    assert "on the 0 nodes that it may be on (with-containers)" in reason
    tell(site, n1=True)
    site.until(BOXED, "running")
    assert nodes_of(site, BOXED) == ["n1"]


def test_who_runs_already_stays_when_its_node_says_that_it_runs_none(site: Site) -> None:
    submit(site, BOXED, boxed=True)
    site.until(BOXED, "running")
    tell(site, **dict.fromkeys(nodes_of(site, BOXED), False))
    site.passes(3)
    assert site.state(BOXED) == "running"
    assert site.store.ledger.attempts()[BOXED] == 1


def test_rounds_know_of_no_such_nodes_where_every_node_runs_them(site: Site) -> None:
    tell(site, n1=True, n2=True)
    submit(site, BOXED, boxed=True)
    snapshot = site.one_pass().snapshot
    assert snapshot.node_sets == ()
    assert snapshot.jobs[0].spec.task_groups[0].nodes == ""
