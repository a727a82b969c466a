"""Every document of a repository, checked alone and turned into values with places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from reconciler.access.policy import AccessPolicy
from reconciler.alerts.policy import AlertPolicy
from reconciler.documents.clusters import folder_for, replaces
from reconciler.documents.declarations import Declaration, declare
from reconciler.documents.files import Files, is_document, is_snapshot
from reconciler.documents.host_quota import with_host_rows_apart
from reconciler.documents.inventory import NodePoolSpec
from reconciler.documents.policy_test import PolicyTest
from reconciler.documents.quota_hours import with_hours_of
from reconciler.documents.reader import Located, read_yaml
from reconciler.documents.reservations import with_its_windows
from reconciler.documents.schemas import FOLDER_OF_KIND
from reconciler.documents.shape import kind_of, shape_problems
from reconciler.documents.snapshot import snapshot_file_problems
from reconciler.documents.text import BYTES_MAX
from reconciler.documents.topology import TopologySpec
from reconciler.model.budget import GpuBudget
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.idle_policy import IdlePolicy
from reconciler.model.problem import START, InvalidDocumentsError, Problem, problem_at
from reconciler.model.rate_card import RateCard
from reconciler.model.retry_policy import RetryPolicy
from solver.plan.words import with_article
from solver.policy.division import MigGeometry, SharingPolicy
from solver.policy.policy import PriorityClass, Queue, SchedulingPolicy
from solver.policy.reservation import DeclaredReservation

Named = TypeVar("Named", PriorityClass, SchedulingPolicy)

_KEPT: dict[str, tuple[str, Any]] = {
    "CheckpointPolicy": ("checkpoints", CheckpointPolicy),
    "AccessPolicy": ("access", AccessPolicy),
    "AlertPolicy": ("alerts", AlertPolicy),
    "HealthPolicy": ("health", HealthPolicy),
    "IdlePolicy": ("idle", IdlePolicy),
    "Budget": ("budgets", GpuBudget),
    "MigGeometry": ("mig", MigGeometry),
    "NodePool": ("pools", NodePoolSpec),
    "PolicyTest": ("tests", PolicyTest),
    "PriorityClass": ("classes", PriorityClass),
    "Queue": ("queues", Queue),
    "Reservation": ("reservations", DeclaredReservation),
    "RateCard": ("rates", RateCard),
    "RetryPolicy": ("retries", RetryPolicy),
    "SchedulingPolicy": ("settings", SchedulingPolicy),
    "SharingPolicy": ("sharing", SharingPolicy),
    "Topology": ("topologies", TopologySpec),
}
"""Where in a DocumentSet the documents of each kind go, and what they become."""

# What may lie beside documents without being one.
DOCUMENTS_MAX = 20_000
"""As many as there may be files; 10,000 queues are read in some ten seconds."""
BYTES_OF_ALL_MAX = 32 * 1024 * 1024
"""Of documents; snapshots are beside them. Found before any of them is parsed."""

_IGNORED_SUFFIXES = (".md", ".txt")
_IGNORED_NAMES = {"CODEOWNERS", "OWNERS", "LICENSE"}


@dataclass
class DocumentSet:
    """What was found. `names` (and places) has wrong documents too, so that one mistake isn't told as many."""

    queues: list[Declaration[Queue]] = field(default_factory=list)
    classes: list[Declaration[PriorityClass]] = field(default_factory=list)
    settings: list[Declaration[SchedulingPolicy]] = field(default_factory=list)
    sharing: list[Declaration[SharingPolicy]] = field(default_factory=list)
    mig: list[Declaration[MigGeometry]] = field(default_factory=list)
    reservations: list[Declaration[DeclaredReservation]] = field(default_factory=list)
    checkpoints: list[Declaration[CheckpointPolicy]] = field(default_factory=list)
    retries: list[Declaration[RetryPolicy]] = field(default_factory=list)
    access: list[Declaration[AccessPolicy]] = field(default_factory=list)
    alerts: list[Declaration[AlertPolicy]] = field(default_factory=list)
    health: list[Declaration[HealthPolicy]] = field(default_factory=list)
    rates: list[Declaration[RateCard]] = field(default_factory=list)
    idle: list[Declaration[IdlePolicy]] = field(default_factory=list)
    budgets: list[Declaration[GpuBudget]] = field(default_factory=list)
    tests: list[Declaration[PolicyTest]] = field(default_factory=list)
    pools: list[Declaration[NodePoolSpec]] = field(default_factory=list)
    topologies: list[Declaration[TopologySpec]] = field(default_factory=list)
    names: dict[str, dict[str, str]] = field(default_factory=lambda: {kind: {} for kind in FOLDER_OF_KIND})
    all_readable: bool = True
    problems: list[Problem] = field(default_factory=list)

    def known(self, kind: str) -> set[str] | None:
        """Names of all documents of a kind, or None where a file could not be read: it may hold any."""
        return set(self.names[kind]) if self.all_readable else None


def gather(files: Files) -> DocumentSet:
    """Read all files of one cluster; what is wrong is in `problems`."""
    found = DocumentSet(problems=list(files.refused), all_readable=not files.refused)
    # One that is too large by itself has an error of its own.
    sizes = (len(raw) for path, raw in files.contents.items() if is_document(path))
    if sum(size for size in sizes if size <= BYTES_MAX) > BYTES_OF_ALL_MAX:
        return _too_much(".", found, f"the documents have more than {BYTES_OF_ALL_MAX} bytes together")
    # What a cluster has of its own comes before what it replaces: `clusters/` before `policies/`.
    left = DOCUMENTS_MAX
    for path, raw in sorted(files.contents.items()):
        if is_document(path):
            left -= _read_documents(path, raw, found)
            if left < 0:
                return _too_much(path, found, f"up to here there are more than {DOCUMENTS_MAX} documents")
        elif is_snapshot(path):
            found.problems += snapshot_file_problems(raw, path)
        else:
            found.problems += _stray_file(path)
    return found


def _too_much(path: str, found: DocumentSet, message: str) -> DocumentSet:
    """No more of it is read: a revision that takes an hour to refuse would keep good ones waiting."""
    found.all_readable = False
    fix = "Delete what is not policy, or give each cluster a repository of its own."
    found.problems.append(problem_at(path, START, "too-much", message, fix))
    return found


def _stray_file(path: str) -> Iterator[Problem]:
    name = path.rpartition("/")[2]
    if not (name.startswith(".") or name in _IGNORED_NAMES or name.endswith(_IGNORED_SUFFIXES)):
        fix = "Documents end in .yaml; delete or rename it."
        yield problem_at(path, START, "not-read", "nothing reads this file", fix, "warning")


def _read_documents(path: str, raw: bytes, found: DocumentSet) -> int:
    """Returns how many there are."""
    try:
        documents = read_yaml(raw, path)
    except InvalidDocumentsError as error:
        found.all_readable = False
        found.problems += error.problems
        return 0
    queues = 0
    for document in documents:
        kind = kind_of(document, path)
        if isinstance(kind, Problem):
            found.all_readable = False
            found.problems.append(kind)
            continue
        found.problems += _misplaced(document, kind, path)
        queues += kind == "Queue"
        if kind == "Queue" and queues > 1:
            fix = "Give it a file of its own, so that it can have its own owners."
            found.problems.append(
                problem_at(path, document.place(()), "one-queue-per-file", "this is a second Queue in one file", fix)
            )
        if kind in FOLDER_OF_KIND:
            _take(document, kind, path, found)
    return len(documents)


def _misplaced(document: Located, kind: str, path: str) -> Iterator[Problem]:
    place = document.place(("kind",))
    folder = folder_for(FOLDER_OF_KIND[kind], path) if kind in FOLDER_OF_KIND else None
    if kind in ("Job", "Pipeline"):
        fix = f"Move it out of the repository and submit it: quorate submit -f {path.rpartition('/')[2]}."
        yield problem_at(path, place, "job-in-git", "jobs do not live in the repository", fix)
    elif folder is None:
        fix = "Delete it here; example snapshots are .json files in cluster-state/."
        yield problem_at(path, place, "wrong-folder", f"{with_article(kind)} is not policy", fix)
    elif not path.startswith(f"{folder}/"):
        yield problem_at(
            path, place, "wrong-folder", f"{with_article(kind)} belongs in {folder}/", f"Move it to {folder}/."
        )


def _take(document: Located, kind: str, path: str, found: DocumentSet) -> None:
    """Check one document; keep its value if it has the right shape, is the first of its name, and is not replaced."""
    document = with_host_rows_apart(document) if kind == "Queue" else document
    shape = shape_problems(document, kind, path)
    found.problems += shape
    metadata = document.value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        found.all_readable = False
        return
    first = found.names[kind].get(name)
    if first is not None and replaces(first, path):
        return
    if first is not None:
        at = document.place(("metadata", "name"))
        message = f"there is {with_article(kind)} {name[:63]} already, at {first}"
        found.problems.append(problem_at(path, at, "duplicate-name", message, "Rename or delete one of them."))
        return
    found.names[kind][name] = f"{path}:{document.place(('metadata', 'name')).line}"
    if not shape:
        try:
            _keep(document, kind, path, found)
        except InvalidDocumentsError as error:
            found.problems += error.problems


def _keep(document: Located, kind: str, path: str, found: DocumentSet) -> None:
    spec, name = document.value["spec"], document.value["metadata"]["name"]
    into, type_ = _KEPT[kind]
    named = {**spec, "name": name} if "name" in type_.__struct_fields__ else spec
    declared = declare(document, path, named, type_)
    if type_ is Queue:
        declared = with_hours_of(_queue_with_origins(declared))
    elif type_ is PriorityClass:
        declared = _with_origin_of(declared, "protection")
    elif type_ is SchedulingPolicy:
        declared = _with_origin_of(declared, "evictions")
    elif "origin" in type_.__struct_fields__:
        declared = declared.holding(msgspec.structs.replace(declared.value, origin=declared.origin))
    if type_ is DeclaredReservation:
        declared = with_its_windows(declared)
    getattr(found, into).append(declared)


def _with_origin_of(declared: Declaration[Named], field: str) -> Declaration[Named]:
    """With its own place, and that of a part of it that messages cite by itself, if it says that part."""
    at, told = declared.document.key_places.get(("spec", field)), {"origin": declared.origin}
    if at is not None:
        told[field] = msgspec.structs.replace(getattr(declared.value, field), origin=f"{declared.file}:{at.line}")
    return declared.holding(msgspec.structs.replace(declared.value, **told))


def _queue_with_origins(queue: Declaration[Queue]) -> Declaration[Queue]:
    quota = tuple(
        msgspec.structs.replace(entry, origin=queue.origin_of(("spec", "quota", index)))
        for index, entry in enumerate(queue.value.quota)
    )
    host_quota = tuple(
        msgspec.structs.replace(entry, origin=queue.origin_of(("spec", "hostQuota", index)))
        for index, entry in enumerate(queue.value.host_quota)
    )
    namespaces = tuple(
        msgspec.structs.replace(entry, origin=queue.origin_of(("spec", "access", "namespaces", index)))
        for index, entry in enumerate(queue.value.access.namespaces)
    )
    access = msgspec.structs.replace(queue.value.access, namespaces=namespaces)
    replaced = msgspec.structs.replace(
        queue.value, quota=quota, host_quota=host_quota, access=access, origin=queue.origin
    )
    return queue.holding(replaced)
