"""What the admission policy is told of namespaces means what rounds go by; and when it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from reconciler.control.control import NoPolicyError, PolicyInForce
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import NotFoundError, UnreachableError
from reconciler.kubernetes.control.namespace_publication import NamespacePublication
from reconciler.kubernetes.objects.queue_names import LocalQueue, NamespaceObject, QueueNames
from reconciler.kubernetes.objects.wire import Meta
from reconciler.kubernetes.status.namespace_parameters import (
    BYTES_MAX,
    WORDS_MAX,
    TooManyNamespacesError,
    parameters_of,
)
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import NotLeaderError
from solver.model.quantities import Instant
from solver.model.workload import KubernetesNamespace, QueueName
from solver.policy.namespace_rules import NamespaceRules
from solver.policy.policy import (
    NamespaceAccess,
    NamespaceSelector,
    Policy,
    PriorityClass,
    Queue,
    QueueAccess,
    SchedulingPolicy,
    policy_of,
)
from solver.policy.tree import QueueTree
from solver.queueing.entry import barred
from tests.drawn import worlds

PARENTS = {"org": None, "left": "org", "right": "org", "r1": "right", "r2": "right", "alone": None}
LEAVES = ("left", "r1", "r2", "alone")
NAMESPACES = {"vision": ("team=a",), "vision-2": ("team=a", "tier=gpu"), "lab-7": ("tier=gpu",), "guests": ()}
"""With their labels."""
CLASSES = ("", "batch", "training")
NAMES = ("main", "fast", "left")

more = {
    "priority_classes": st.none() | st.sampled_from([("batch",), ("batch", "training")]),
    "local_queues": st.sampled_from([(), ("main",), ("main", "fast")]),
}
selectors = st.builds(
    NamespaceSelector, st.sampled_from([{"team": "a"}, {"tier": "gpu"}, {"team": "a", "tier": "gpu"}])
)
entries = st.builds(
    NamespaceAccess, st.sampled_from(["vision", "vision-*", "lab-*", "lab-7", "*"]), **more
) | st.builds(NamespaceAccess, selector=selectors, **more)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    def queue(name: str, parent: str | None) -> Queue:
        listed = draw(st.lists(entries, max_size=2, unique_by=lambda entry: entry.title))
        above = QueueName(parent) if parent else None
        return Queue(QueueName(name), above, access=QueueAccess(namespaces=tuple(listed)))

    settings = SchedulingPolicy(unlisted_namespaces=draw(st.sampled_from(["allowed", "refused"])))
    classes = tuple(PriorityClass(name) for name in CLASSES if name)
    return policy_of(tuple(queue(name, parent) for name, parent in PARENTS.items()), classes, settings)


local_queues = st.lists(
    st.builds(LocalQueue, st.sampled_from(sorted(NAMESPACES)), st.sampled_from(NAMES), st.sampled_from(LEAVES)),
    unique_by=lambda local: (local.namespace, local.name),
    max_size=3,
)


class Reader:
    """Understands the data as deploy/kubernetes/namespaces.yaml does."""

    def __init__(self, data: dict[str, str]) -> None:
        self.data = data

    def words(self, key: str) -> list[str]:
        return [word for word in self.data.get(key, "").split(" ") if word]

    def line(self, key: str, namespace: str) -> list[str]:
        _, found, rest = self.data.get(key, "").partition(f"\n{namespace} ")
        return rest.partition("\n")[0].split(" ") if found else []

    def by_labels(self, key: str, namespace: str) -> list[str]:
        lines = [line.split(" ") for line in self.data.get(key, "").split("\n") if line]
        return [word for line in lines if set(line[0].split(",")) <= set(NAMESPACES[namespace]) for word in line[1:]]

    def lets_in(self, namespace: str, queue: str, priority_class: str) -> bool:
        split = [word.split("*=") for word in self.words("beginnings")]
        found = [word for beginning, word in split if namespace.startswith(beginning)]
        found += self.line("namespaces", namespace) + self.by_labels("selectors", namespace)
        if not found:
            return self.data["unlisted"] == "allowed" and queue not in self.words("closed")
        here = [word for word in found if word == queue or word.startswith(f"{queue}:")]
        return bool(here) and (not priority_class or bool({queue, f"{queue}:{priority_class}"} & set(here)))

    def meant(self, namespace: str, name: str) -> str:
        split = [word.split("*/") for word in self.words("sharedNames")]
        found = self.line("localNames", namespace) + self.by_labels("selectedNames", namespace)
        found += [word for beginning, word in split if namespace.startswith(beginning)]
        return next((word.split("=")[1] for word in found if word.startswith(f"{name}=")), name)


@worlds(200)
@given(policies(), local_queues)
def test_pods_that_are_let_in_are_those_that_rounds_let_in(policy: Policy, local: list[LocalQueue]) -> None:
    tree, data = QueueTree.of(policy), parameters_of(policy, sorted(local))
    if data is None:
        assert not any(queue.access.namespaces for queue in policy.queues)
        return
    names, told = QueueNames(), Reader(data)
    names.declare(NamespaceRules.of(policy))
    for one in local:
        names.change(None, one)
    for namespace, labels in NAMESPACES.items():
        metadata = Meta(namespace, labels=dict(label.split("=") for label in labels))
        names.change_namespace(None, NamespaceObject(metadata))
        labelled = KubernetesNamespace(namespace, labels)
        for queue in LEAVES:
            for known in CLASSES:
                bar = barred(tree, QueueName(queue), labelled, known)
                # A pod that names no class may have one by its PodGroup: what the queue lets in for some class is let in.
                may = bar is None or (not known and bar.kind == "class")
                assert told.lets_in(namespace, queue, known) == may, (namespace, queue, known)
        for name in NAMES:
            assert told.meant(namespace, name) == names.queue_called(namespace, name)


def listing(*names: str) -> Policy:
    access = QueueAccess(namespaces=tuple(NamespaceAccess(name) for name in names))
    return policy_of((Queue(QueueName("a"), access=access),))


def test_what_does_not_fit_is_not_written_in_part() -> None:
    assert parameters_of(listing(), [LocalQueue("v", "main", "a")]) is None
    fitting = listing(*(f"n-{number}-*" for number in range(WORDS_MAX)))
    assert parameters_of(fitting, ()) is not None
    with pytest.raises(TooManyNamespacesError, match="beginnings has 5001 words in a line, at most 5000 are written"):
        parameters_of(listing(*(f"n-{number}-*" for number in range(WORDS_MAX + 1))), ())
    many = [LocalQueue(f"namespace-{number}", "x" * 63, "q" * 63) for number in range(BYTES_MAX // 140)]
    with pytest.raises(TooManyNamespacesError, match="bytes, at most 900000 are written"):
        parameters_of(listing("v"), many)


class Cluster:
    """A policy in force, LocalQueues, a Lease, and an API server with one ConfigMap at most, which counts what it is asked."""

    def __init__(self) -> None:
        self.policy: Policy | None = None
        self.local: tuple[LocalQueue, ...] = ()
        self.epoch = 0
        self.silent = False
        self.there: dict[str, str] | None = None
        self.asked: list[str] = []

    def current(self) -> PolicyInForce:
        if self.policy is None:
            raise NoPolicyError("none yet")
        return PolicyInForce(self.policy.digest, self.policy, ())

    def leadership(self) -> Leadership:
        if not self.epoch:
            raise NotLeaderError("another", Instant(0))
        return Leadership("one", Epoch(self.epoch), 0.0)

    async def get(self, _: str, kind: type[Any]) -> Any:
        self.asked.append("get")
        if self.silent:
            raise UnreachableError("GET: no answer")
        if self.there is None:
            raise NotFoundError("GET", 404, "NotFound", "")
        return kind(data=self.there)

    async def create(self, _: str, body: Any) -> None:
        self.asked.append("create")
        self.there = body["data"]

    async def patch(self, _: str, body: Any) -> None:
        self.asked.append("patch")
        self.there = {key: value for key, value in ((self.there or {}) | body["data"]).items() if value is not None}

    async def delete(self, _: str) -> None:
        self.asked.append("delete")
        self.there = None


Event = Callable[[Cluster], None]


def played(*story: Event) -> Cluster:
    """What came of it when these things happen, each before the next look."""
    cluster, left = Cluster(), iter(story)

    async def sleep(_: float) -> None:
        happens = next(left, None)
        if happens is None:
            raise asyncio.CancelledError
        happens(cluster)

    keeper = NamespacePublication(cluster, lambda: cluster.local, "quorate-system", structlog.get_logger(), sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keeper.run(cast("Api", cluster), cluster))
    return cluster


def has(**fields: Any) -> Event:
    def happens(cluster: Cluster) -> None:
        for name, value in fields.items():
            setattr(cluster, name, value)

    return happens


def nothing(_: Cluster) -> None:
    pass


def test_it_is_written_once_and_kept() -> None:
    cluster = played(has(policy=listing("v")), has(epoch=1), nothing, has(there={"v": "evil"}), has(there=None))
    assert cluster.asked == ["get", "create", "get", "get", "patch", "get", "create"]
    assert cluster.there == parameters_of(listing("v"), ())


def test_it_follows_the_policy_and_local_queues() -> None:
    local = (LocalQueue("v", "main", "a"),)
    cluster = played(has(policy=listing("v"), epoch=1), has(local=local), has(policy=listing("w")), nothing)
    assert cluster.asked == ["get", "create", "get", "patch", "get", "patch", "get"]
    assert cluster.there == parameters_of(listing("w"), local)


def test_where_nothing_is_said_of_namespaces_each_leader_looks_once() -> None:
    cluster = played(has(policy=listing(), epoch=1), nothing, nothing, has(there={}, epoch=3), nothing)
    assert cluster.asked == ["get", "get", "delete"]


def test_what_fails_is_told_once_and_tried_again() -> None:
    with capture_logs() as told:
        cluster = played(has(policy=listing("v"), epoch=1, silent=True), nothing, has(silent=False))
    assert cluster.asked == ["get", "get", "get", "create"]
    assert [(each["event"], each["message"]) for each in told] == [("namespaces-not-shown", "GET: no answer")]


def test_what_does_not_fit_is_told_and_taken_away() -> None:
    too_many = listing(*(f"n-{number}-*" for number in range(WORDS_MAX + 1)))
    with capture_logs() as told:
        cluster = played(has(policy=listing("v"), epoch=1), has(policy=too_many), nothing)
    assert cluster.asked == ["get", "create", "get", "delete"]
    words = (
        f"beginnings has {WORDS_MAX + 1} words in a line, at most {WORDS_MAX} are written: only rounds keep these rules"
    )
    assert [each["message"] for each in told] == [words]
