"""A policy repository read whole: its documents checked alone and together, then compiled into a round's policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from reconciler.access.policy import AccessPolicy
from reconciler.documents.access import access_problems
from reconciler.documents.alerts import alert_problems
from reconciler.documents.budgets import budget_problems
from reconciler.documents.checkpoints import checkpoint_problems
from reconciler.documents.clusters import (
    INVENTORY,
    ONE_OF_A_KIND,
    ClusterNotChosenError,
    chosen,
    clusters_of,
    files_for,
    layout_problems,
)
from reconciler.documents.declarations import Declaration
from reconciler.documents.document_set import DocumentSet, gather
from reconciler.documents.files import FOLDERS, Files, is_read
from reconciler.documents.health import health_problems
from reconciler.documents.host_share import host_share_problems
from reconciler.documents.idle_policies import idle_policy_problems
from reconciler.documents.inventory import declared_nodes, gpus_by_type, inventory_problems
from reconciler.documents.mig import fixed_layouts, mig_problems, with_models
from reconciler.documents.namespaces import namespace_problems
from reconciler.documents.operations import Operations
from reconciler.documents.policy_test import PolicyTest
from reconciler.documents.policy_tests import names_of, policy_test_problems
from reconciler.documents.quota import QuotaTree
from reconciler.documents.quota_hours import hours_problems
from reconciler.documents.rate_cards import rate_card_problems
from reconciler.documents.reservations import reservation_problems
from reconciler.documents.retries import retry_problems
from reconciler.documents.sharing import sharing_problems
from reconciler.documents.topology import TopologySpec
from reconciler.documents.type_weights import type_weight_problems
from reconciler.documents.user_weights import user_weight_problems, with_member_weights
from reconciler.model.problem import START, InvalidDocumentsError, Problem, did_you_mean, problem_at
from solver.model.cluster import Node
from solver.policy.images import ImagePolicy
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of

NO_DOCUMENTS = "no-documents"
"""The code of the problem of a repository without a policy."""


@dataclass(frozen=True)
class Compiled:
    """What a repository says: the policy, the declared nodes sorted by name, and the rules that rounds do not read.

    `topologies`: the Topology documents by name, as they are written. `places`: where each document stands (`file:line`), by
    `Kind name`; for messages only.
    """

    policy: Policy
    nodes: tuple[Node, ...]
    operations: Operations
    topologies: Mapping[str, TopologySpec] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def parts(self) -> tuple[Policy, tuple[Node, ...], Operations]:
        """All of it."""
        return self.policy, self.nodes, self.operations


@dataclass(frozen=True)
class Reading:
    """What came of reading a repository. Problems are sorted by place; `compiled` is None where one is an error.

    `tests`, sorted by name, are no part of the policy: they say of it what must hold.
    """

    problems: tuple[Problem, ...]
    compiled: Compiled | None
    tests: tuple[Declaration[PolicyTest], ...] = ()

    def checked(self) -> Compiled:
        """The compiled policy; raises InvalidDocumentsError where there is none."""
        if self.compiled is None:
            raise InvalidDocumentsError(problem for problem in self.problems if problem.severity == "error")
        return self.compiled


def read_repository(files: Files, cluster: str | None = None) -> Reading:
    """Check and compile what a repository says of one cluster (None: its only one). Pure: it depends on the bytes alone."""
    try:
        found = gather(files_for(files, chosen(clusters_of(files), cluster)))
    except ClusterNotChosenError as error:
        return Reading((problem_at(INVENTORY, START, "which-cluster", str(error), error.fix),), None)
    of_all = (*_nothing_found(files), *layout_problems(files))
    problems = tuple(sorted({*of_all, *found.problems, *_problems_together(found)}))
    valid = all(problem.severity != "error" for problem in problems)
    tests = tuple(sorted(found.tests, key=lambda test: test.name))
    return Reading(problems, _compile(found) if valid else None, tests)


def read_clusters(files: Files) -> dict[str | None, Reading]:
    """What comes of reading for every cluster; None: the only one, without a name."""
    return {cluster: read_repository(files, cluster) for cluster in clusters_of(files) or (None,)}


def problems_of(readings: Mapping[str | None, Reading]) -> tuple[Problem, ...]:
    """The problems of all clusters, each once; what is wrong with shared documents in some of them alone says in which."""
    found: dict[Problem, list[str]] = {}
    for cluster, reading in readings.items():
        for problem in reading.problems:
            found.setdefault(problem, []).append(cluster or "")
    return tuple(sorted(_told(problem, clusters, len(readings)) for problem, clusters in found.items()))


def _told(problem: Problem, clusters: Sequence[str], of: int) -> Problem:
    if len(clusters) == of or not problem.file.startswith("policies/"):
        return problem
    listed = f"cluster{'s' * (len(clusters) > 1)} {', '.join(clusters)}"
    return msgspec.structs.replace(problem, message=f"{problem.message} (in {listed})")


def compiled_of_nothing() -> Compiled:
    """What a revision says that has no policy yet: a base to compare the first one with, never one to be put in force."""
    return _compile(DocumentSet())


def _nothing_found(files: Files) -> Iterator[Problem]:
    """No policy at all is a wrong branch, or folders that were moved: in force it would take every queue and node away."""
    if not files.refused and not any(map(is_read, files.contents)):
        fix = f"{', '.join(FOLDERS)} lie at the top of the repository; `quorate init DIR` starts one."
        yield problem_at(".", START, NO_DOCUMENTS, "there is no document of a policy here", fix)


def _problems_together(found: DocumentSet) -> Iterator[Problem]:
    """What no document shows alone."""
    yield from inventory_problems(found.pools, found.topologies, found.known("NodePool"))
    # A pool that can't be read may have any GPU type, so then none is called unknown.
    complete = found.all_readable and len(found.pools) == len(found.names["NodePool"])
    capacity = gpus_by_type(found.pools) if complete else {}
    tree = QuotaTree(found.queues, found.known("Queue"), capacity)
    yield from tree.problems()
    settings = found.settings[0].value if found.settings else SchedulingPolicy()
    yield from hours_problems(tree, settings.convergence)
    yield from _settings_problems(found)
    yield from type_weight_problems(found.settings, capacity)
    yield from host_share_problems(found.settings, found.known("NodePool"))
    yield from _class_problems(found)
    yield from _pool_problems(found)
    yield from namespace_problems(found.queues, found.known("Queue"), found.known("PriorityClass"))
    yield from sharing_problems(found.sharing, found.known("NodePool"), found.known("Queue"))
    yield from mig_problems(found.mig, found.pools, found.known("NodePool"), found.sharing)
    yield from checkpoint_problems(found.checkpoints)
    yield from retry_problems(found.retries)
    yield from access_problems(found.access, found.known("Queue"))
    yield from user_weight_problems(found.queues, _access_in(found), found.all_readable)
    yield from health_problems(found.health)
    yield from alert_problems(found.alerts, found.known("Queue"))
    yield from rate_card_problems(
        found.rates, set(capacity) if complete else None, found.known("NodePool"), found.known("PriorityClass")
    )
    gpu_use = found.settings[0].value.gpu_use if found.settings else SchedulingPolicy().gpu_use
    yield from idle_policy_problems(
        found.idle, found.known("Queue"), found.known("PriorityClass"), gpu_use.keep_minutes
    )
    has_prices = bool(found.names["RateCard"]) or not found.all_readable
    yield from budget_problems(found.budgets, found.known("Queue"), has_prices=has_prices)
    yield from reservation_problems(found.reservations, found.pools if complete else None, found.known("Queue"))
    names = names_of(
        found.queues, found.known("Queue"), found.known("PriorityClass"), found.pools if complete else None
    )
    yield from policy_test_problems(found.tests, names)


def _settings_problems(found: DocumentSet) -> Iterator[Problem]:
    for settings in found.settings[1:]:
        message = f"there is a SchedulingPolicy already, at {found.settings[0].origin}"
        yield settings.problem(("kind",), "second-scheduling-policy", message, ONE_OF_A_KIND)
    classes = found.known("PriorityClass")
    for settings in found.settings:
        if settings.value.solver.mode == "exact" and settings.value.solver.gap:
            message, fix = "an exact round leaves no gap", "Leave gap out, or leave mode at production."
            yield settings.problem(("spec", "solver", "gap"), "gap-in-exact-mode", message, fix)
        default = settings.value.default_priority_class
        if default and classes is not None and default not in classes:
            message, fix = f"there is no PriorityClass {default}", did_you_mean(default, classes)
            yield settings.problem(("spec", "defaultPriorityClass"), "unknown-priority-class", message, fix)


def _class_problems(found: DocumentSet) -> Iterator[Problem]:
    """Priority classes that a queue takes and no document defines."""
    classes = found.known("PriorityClass")
    for queue in found.queues:
        for index, name in enumerate(queue.value.priority_classes or ()):
            if classes is not None and name not in classes:
                message, fix = f"there is no PriorityClass {name}", did_you_mean(name, classes)
                yield queue.problem(("spec", "priorityClasses", index), "unknown-priority-class", message, fix)


def _pool_problems(found: DocumentSet) -> Iterator[Problem]:
    """Pools that a queue or a class names and nobody declares."""
    pools = found.known("NodePool")
    documents: list[Declaration[Queue] | Declaration[PriorityClass]] = [*found.queues, *found.classes]
    for document in documents:
        for index, name in enumerate(document.value.pools or ()):
            if pools is not None and name not in pools:
                message, fix = f"there is no NodePool {name}", did_you_mean(name, pools)
                yield document.problem(("spec", "pools", index), "unknown-pool", message, fix)


def _compile(found: DocumentSet) -> Compiled:
    mig = with_models(found.mig, found.pools)
    access = _access_in(found)
    groups = access.groups if access is not None else {}
    policy = policy_of(
        tuple(with_member_weights(queue.value, groups) for queue in found.queues),
        tuple(priority_class.value for priority_class in found.classes),
        found.settings[0].value if found.settings else SchedulingPolicy(),
        tuple(sharing.value for sharing in found.sharing),
        mig,
        tuple(reservation.value for reservation in found.reservations),
    )
    return Compiled(
        policy,
        declared_nodes(found.pools, found.topologies, fixed_layouts(mig)),
        _operations(found),
        {known.name: known.value for known in found.topologies},
        {f"{kind} {name}": place for kind, places in found.names.items() for name, place in places.items()},
    )


def _operations(found: DocumentSet) -> Operations:
    """What rounds do not read."""
    return Operations(
        tuple(sorted((known.value for known in found.checkpoints), key=lambda known: known.name)),
        tuple(sorted((known.value for known in found.retries), key=lambda known: known.name)),
        _access_in(found),
        tuple(sorted((known.value for known in found.alerts), key=lambda known: known.name)),
        found.health[0].value if found.health else None,
        found.settings[0].value.images if found.settings else ImagePolicy(),
        tuple(sorted((known.value for known in found.rates), key=lambda known: known.start)),
        tuple(sorted((known.value for known in found.idle), key=lambda known: known.name)),
        tuple(sorted((known.value for known in found.budgets), key=lambda known: known.name)),
    )


def _access_in(found: DocumentSet) -> AccessPolicy | None:
    return found.access[0].value if found.access else None
