"""A snapshot under other names decides as the whole one does, and says nothing of who and what is behind them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from reconciler.api.aliases import BUDGET, Aliases, aliased, aliases_for, bare, users_named_by
from solver.milp.highs import optimise
from solver.model.cluster import GpuType
from solver.model.document import encode
from solver.model.inflight import AgingBand, Counter, Ended, InFlight, Intent, Reservation, Usage, declared_holder
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Dependency, Job, JobName, JobSpec, QueueName, SecretUse, TaskGroup
from solver.plan.plan import Plan
from solver.policy.policy import NamespaceAccess, Policy, Queue, QueueAccess, policy_of
from solver.policy.user_shares import UserShares
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.backfill.document_worlds import declared_worlds
from tests.solver.backfill.reserved_worlds import reserved_worlds
from tests.solver.worlds import job, node, policies, snapshots, with_sets

KEY = "k" * 43
SECRET = "s3cret"


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Nested data in which every text that is a name is another."""
    match value:
        case dict():
            return {key: renamed(each, names) for key, each in value.items()}
        case list() | tuple():
            return [renamed(each, names) for each in value]
        case str():
            return names.get(value, value)
        case _:
            return value


def names_in(world: Snapshot, aliases: Aliases) -> dict[str, str]:
    jobs = {name: aliases.job(name) for name in (one.name for one in world.jobs)}
    return jobs | {one.user: aliases.user(one.user) for one in world.jobs}


def decided(plan: Plan) -> Any:
    """What was decided, without the name of the snapshot that it was decided from."""
    return json.loads(encode(msgspec.structs.replace(plan, snapshot="")))


def same_decision(world: Snapshot, policy: Policy) -> None:
    users = users_named_by(policy)
    names = names_in(world, aliases_for(world, KEY, users))
    for optimiser in (None, optimise):
        whole = decided(solve(world, policy, optimiser))
        hidden = decided(solve(aliased(world, KEY, users), policy, optimiser))
        assert renamed(whole, names) == hidden


@settings(max_examples=10, deadline=None)
@given(snapshots(elastic=True, close=True).flatmap(with_sets), policies())
def test_it_decides_the_same(world: Snapshot, policy: Policy) -> None:
    same_decision(world, policy)


@pytest.mark.thorough
@worlds(60)
@given(reserved_worlds())
def test_it_decides_the_same_where_something_is_reserved(known: tuple[Snapshot, Policy]) -> None:
    same_decision(*known)


@pytest.mark.thorough
@worlds(60)
@given(declared_worlds())
def test_it_decides_the_same_where_documents_reserve(known: tuple[Snapshot, Policy]) -> None:
    same_decision(*known)


def test_it_decides_the_same_where_namespaces_are_listed() -> None:
    access = QueueAccess(namespaces=(NamespaceAccess("vision-*"),))
    jobs = [
        msgspec.structs.replace(job(f"{namespace}.pod.a", "team", 1, 1), namespace=namespace)
        for namespace in ("vision-1", "language")
    ]
    world = snapshot_of(Instant(5), [node("n1", 2)], jobs)
    policy = policy_of((Queue(QueueName("team"), access=access),))
    same_decision(world, policy)
    assert [one.namespace for one in aliased(world, KEY, frozenset()).jobs] == ["language", "vision-1"]


def talkative() -> Snapshot:
    """Everything that a snapshot can say of a job, and jobs that are no more."""
    made = job("secret-live", "team", 1, 1)
    group = TaskGroup("worker", 1, made.spec.task_groups[0].shape, command=(SECRET,))
    spec = msgspec.structs.replace(
        made.spec,
        task_groups=(group,),
        command=(SECRET,),
        env={SECRET: SECRET},
        secrets=(SecretUse(SECRET, env=SECRET),),
        depends_on=(Dependency(JobName("secret-before")),),
        data=("secret-data", "public"),
    )
    on = msgspec.structs.replace(node("n1", 2), data=("public",))
    queue, now = QueueName("team"), Instant(5)
    in_flight = InFlight(
        intents=(Intent("stop", JobName("secret-victim"), 1, now, now, beneficiary=JobName("secret-taker")),),
        reservations=(
            Reservation(JobName("secret-gang"), (), now),
            Reservation(declared_holder("maintenance"), (), now),
        ),
        aging=(AgingBand(JobName("secret-aged"), 1, now),),
        history=(Ended(queue, MilliGpu(1000), now, JobName("secret-ended"), Duration(1)),),
        counters=(Counter("evictions", "secret-counted", now, 1), Counter("mig-changes", "pool", now, 1)),
    )
    return snapshot_of(now, [on], [Job(made.name, now, spec, "secret-user", held_by="secret-budget")], in_flight)


def test_no_name_and_nothing_that_a_job_was_given_is_left() -> None:
    hidden = encode(aliased(talkative(), KEY))
    assert b"secret" not in hidden
    assert SECRET.encode() not in hidden
    for kept in (b'"team"', b'"n1"', b'"public"', b'"reservation:maintenance"', b'"pool"'):
        assert kept in hidden


def test_an_alias_is_the_same_in_every_snapshot_and_another_under_another_key() -> None:
    alone = snapshot_of(Instant(5), (), [_owned("b")])
    among = snapshot_of(Instant(9), (), [_owned(name) for name in "abcdefghijklm"])

    def alias(world: Snapshot, key: str) -> tuple[str, str]:
        aliases = aliases_for(world, key)
        return aliases.job("b"), aliases.user("ada")

    (first, user), (second, same_user) = alias(alone, KEY), alias(among, KEY)
    assert (first[:6], second[:7]) == ("job-1-", "job-02-"), "its place among the others"
    assert (first.rpartition("-")[2], user) == (second.rpartition("-")[2], same_user)
    other, other_user = alias(alone, "K" * 43)
    assert other.rpartition("-")[2] != first.rpartition("-")[2]
    assert other_user != user


def _owned(name: str) -> Job:
    return Job(JobName(name), Instant(1), JobSpec(QueueName("team"), ()), "ada")


def test_users_that_the_policy_names_keep_their_names() -> None:
    assert aliased(snapshot_of(Instant(5), (), [_owned("b")]), KEY, {"ada"}).jobs[0].user == "ada"


def test_what_keeps_jobs_from_leaving_is_not_named_and_what_nodes_are_there_by_is_told() -> None:
    kept = msgspec.structs.replace(_owned("b"), leaves="not", held_by="PodDisruptionBudget team/secret")
    told = aliased(snapshot_of(Instant(5), (), [kept], inventory="reported"), KEY)
    assert (told.jobs[0].leaves, told.jobs[0].held_by, told.inventory) == ("not", BUDGET, "reported")


def test_without_aliases_jobs_keep_their_names_and_nothing_else_is_said_of_them() -> None:
    world = talkative()
    told = bare(world)
    assert [one.name for one in told.jobs] == ["secret-live"]
    assert (told.jobs[0].user, told.in_flight) == ("user-1", world.in_flight)
    assert SECRET.encode() not in encode(told)


@pytest.mark.parametrize("name", ["zebra", "r", "reservation", "abc"])
def test_places_in_the_order_are_kept_among_devices_held_for_documents_too(name: str) -> None:
    world = snapshot_of(Instant(5), (), [_owned(name)])
    alias = aliases_for(world, KEY).job(name)
    document = declared_holder("maintenance")
    assert (name < document) == (alias < document)


def test_every_field_is_carried_hidden_or_left_out_on_purpose() -> None:
    """What is new in a job, or in flight, is not published before somebody has decided how."""
    hidden = {"name", "user", "spec", "held_by"}
    carried = {"submitted_at", "phase", "attempt", "started_at", "placement", "time_limit", "evicted_at"}
    # A namespace is carried as queues are: a change of what they list is planned by its name and labels, and by how pods name them.
    carried |= {
        "served_gpu_ms",
        "boosted",
        "saved_at",
        "leaves",
        "namespace",
        "namespace_labels",
        "queue_called",
        "quiet",
    }
    assert set(Job.__struct_fields__) == hidden | carried
    left_out_or_hidden = {"command", "env", "secrets", "container", "working_directory", "depends_on", "array", "data"}
    assert set(JobSpec.__struct_fields__) - left_out_or_hidden == {
        "queue", "task_groups", "priority_class", "topology", "time_limit", "checkpoint", "fallback_after", "type",
        "idle_limit", "retry_policy", "time_limit_warning", "stuck", "terminal",
        "finish_by", "finish_within",
    }  # fmt: skip
    renamed_in_flight = {"intents", "reservations", "aging", "history", "counters", "usage"}
    without_names = {"durations", "convergence", "repartitions"}
    assert set(InFlight.__struct_fields__) == renamed_in_flight | without_names


def test_past_use_of_users_has_no_names_but_of_those_that_git_names() -> None:
    """Users that weigh something in the policy keep their names, or they would not weigh it."""
    queue, gpu_type = QueueName("q"), GpuType("H100")
    used = tuple(Usage(queue, gpu_type, 1.0, user) for user in ("ada", "bob", "", None))
    world = snapshot_of(Instant(0), [node("n1", 1)], [], InFlight(usage=used))
    policy = policy_of((Queue(queue, users=UserShares(True, {"ada": 2})),))
    found = {known.user for known in aliased(world, KEY, users_named_by(policy)).in_flight.usage}
    assert found == {None, "", "ada", aliases_for(world, KEY).user("bob")}
    assert {known.user for known in bare(world).in_flight.usage} == {None, "", "user-1", "user-2"}
