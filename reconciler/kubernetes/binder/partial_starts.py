"""What is to be done about gangs that were begun and may not be whole: send the rest again, or release what is bound."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, Protocol

import msgspec

from reconciler.kubernetes.binder.journal import (
    JournalUnreadableError,
    PodBinding,
    StartJournal,
    hold_annotations,
    is_there,
    read,
)
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.pod_view import PodView
from reconciler.kubernetes.objects.selectors import may_be_on, tolerates_all
from reconciler.kubernetes.objects.wire import KubeNode, Pod
from solver.model.quantities import Instant
from solver.model.workload import JobName

ROLL_FORWARD_S = 30.0
"""From its first binding on a gang has so long to be whole. A new leader needs 18 s until it writes; the rest is for sending."""
AGAIN_S = 3.0
"""Before, what a watch does not show as bound is more likely late than lost."""
PodKey = tuple[str, str]


class StartKey(NamedTuple):
    """A begun start, told apart from others: a gang that grows has one more, with another first pod."""

    job: JobName
    attempt: int
    first: PodKey


class Again(NamedTuple):
    """Pods of a start to bind where the journal says, as they are now; the journal too where its first pod was made anew."""

    journal: StartJournal
    pods: tuple[PodBinding, ...]


class BoundPod(NamedTuple):
    """A pod to be written to or deleted, if it is still this one."""

    namespace: str
    name: str
    uid: str


class ReleasePods(NamedTuple):
    """Bound pods of a start that is given up, and why in words. A marked pod has the reason written on it already."""

    job: JobName
    attempt: int
    pods: tuple[BoundPod, ...]
    marked: frozenset[str]
    why: str


class Whole(NamedTuple):
    """A start that all came of: its journal, on this pod, has done its work."""

    start: StartKey
    pod: BoundPod


class Unreadable(NamedTuple):
    """A pod whose annotation is no journal, and why in words."""

    pod: PodKey
    why: str


class PartialStart(NamedTuple):
    """Each sorted by job. `nothing`: remembered starts of which nothing is bound."""

    again: tuple[Again, ...] = ()
    release: tuple[ReleasePods, ...] = ()
    whole: tuple[Whole, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    nothing: tuple[StartKey, ...] = ()


class NodesByName(Protocol):
    """Nodes that are looked up one by one."""

    def get(self, name: str, /) -> KubeNode | None:
        """The node of that name, if it is there."""


class BindableNodes(NamedTuple):
    """Where pods may be bound. `refused`: pods of gangs that are refused as they are now.

    `unready`: pods for which something has to be there before they are bound, and is not: gates are to go, claims to be filled.
    """

    nodes: NodesByName
    refused: Container[PodKey] = frozenset()
    unready: Container[PodKey] = frozenset()


class _Mark(msgspec.Struct, frozen=True):
    job: str
    attempt: int
    why: str


def start_of(journal: StartJournal) -> StartKey:
    """Which start a journal is of."""
    return StartKey(journal.job, journal.attempt, journal.pods[0].key)


def mark_of(release: ReleasePods) -> str:
    """The annotation that pods get before they are deleted: the next leader goes on with that."""
    return msgspec.json.encode(_Mark(release.job, release.attempt, release.why)).decode()


def partial_start(
    pods: PodView,
    now: Instant,
    ground: BindableNodes,
    remembered: Iterable[StartJournal] = (),
    underway: Container[StartKey] = (),
    roll_forward_s: float = ROLL_FORWARD_S,
) -> PartialStart:
    """What follows from all pods of the cluster and the ground that they may be on.

    `remembered`: starts that this process has begun, so that one is known though the pod with its journal is gone.
    `underway`: starts that are being sent just now, which are left alone.
    """
    found, unreadable = _read(pods.noted.values())
    journals = {start_of(journal): journal for journal in (*remembered, *found.journals)}
    wanted = {pod.key for journal in journals.values() for pod in journal.pods}
    there = {key: pods[key] for key in wanted if key in pods}
    judged = [
        _judged(journals[start], there, now, ground, roll_forward_s)
        for start in sorted(journals)
        if start not in underway
    ]
    release = [one for one in judged if isinstance(one, ReleasePods)]
    known = {pod.uid for one in release for pod in one.pods}
    release += [one for one in found.marked if one.pods[0].uid not in known]
    return PartialStart(
        again=tuple(one for one in judged if isinstance(one, Again)),
        release=tuple(sorted(release, key=lambda one: one[:3])),
        whole=tuple(one for one in judged if isinstance(one, Whole)),
        unreadable=unreadable,
        nothing=tuple(one for one in judged if isinstance(one, StartKey)),
    )


class _Found(NamedTuple):
    journals: list[StartJournal]
    marked: list[ReleasePods]


def _read(pods: Iterable[Pod]) -> tuple[_Found, tuple[Unreadable, ...]]:
    """What is written on pods that have a node."""
    found = _Found([], [])
    unreadable: list[Unreadable] = []
    for pod in pods:
        notes = pod.metadata.annotations
        if not pod.spec.node_name or (names.GANG_PLAN not in notes and names.RELEASE not in notes):
            continue
        try:
            if names.GANG_PLAN in notes:
                found.journals.append(_journal_on(pod))
            if names.RELEASE in notes and _is_to_go(pod):
                found.marked.append(_marked(pod))
        except JournalUnreadableError as error:
            unreadable.append(Unreadable(pod.key, str(error)))
    return found, tuple(sorted(unreadable))


def _journal_on(pod: Pod) -> StartJournal:
    journal = read(pod.metadata.annotations[names.GANG_PLAN])
    if journal.pods[0].key != pod.key:
        raise JournalUnreadableError(f"{names.GANG_PLAN}: is that of the pod {journal.pods[0].name}")
    return journal


def _marked(pod: Pod) -> ReleasePods:
    try:
        mark = msgspec.json.decode(pod.metadata.annotations[names.RELEASE], type=_Mark)
    except msgspec.MsgspecError as error:
        raise JournalUnreadableError(f"{names.RELEASE}: {error}") from error
    one = _bound_pod(pod)
    return ReleasePods(JobName(mark.job), mark.attempt, (one,), frozenset({one.uid}), mark.why)


def _judged(
    journal: StartJournal, there: Mapping[PodKey, Pod], now: Instant, ground: BindableNodes, roll_forward_s: float
) -> Again | ReleasePods | Whole | StartKey | None:
    states = [_state(journal, binding, there.get(binding.key), ground) for binding in journal.pods]
    if not any(state in ("there", "elsewhere") for state in states):
        return start_of(journal)
    if all(state == "there" for state in states):
        head = there[journal.pods[0].key]
        return Whole(start_of(journal), _bound_pod(head))
    if any(_notes(names.EVICT, there, journal)):
        return None  # it was asked to leave meanwhile, and leaves by that record
    if why := _lost(journal, states, there, now, roll_forward_s):
        return _release(journal, there, why)
    if now - journal.at < AGAIN_S * 1000:
        return None
    missing = tuple(
        binding._replace(uid=pod.metadata.uid, resource_version=pod.metadata.resource_version)
        for binding, state in zip(journal.pods, states, strict=True)
        if state == "waits" and (pod := there.get(binding.key))
    )
    return Again(journal, missing) if missing else None


State = Literal["there", "elsewhere", "waits", "unready", "stranded", "barred", "gone"]
"""Stranded: its node is gone. Barred: it may not be on that node, or was made anew as one that is refused.

Unready: it was made anew, and can't be bound yet. What the one before it had is not there for it: volumes, devices by claims.
"""


def _state(journal: StartJournal, binding: PodBinding, pod: Pod | None, ground: BindableNodes) -> State:
    """How a pod stands to its plan; one that was made anew under its name may take its place, if it may be there itself."""
    if pod is None or pod.metadata.deletion_timestamp:
        return "gone"
    if not pod.spec.node_name:
        return "gone" if pod.is_over else _waiting(binding, pod, ground)
    return "there" if is_there(pod, binding, hold_annotations(binding, journal)) else "elsewhere"


def _waiting(binding: PodBinding, pod: Pod, ground: BindableNodes) -> State:
    """How a pod without a node stands to the one that it is to have."""
    node = ground.nodes.get(binding.node)
    if node is None:
        return "stranded"
    is_let = may_be_on(pod.spec, node) and tolerates_all(pod.spec.tolerations, node.spec.taints)
    is_anew = pod.metadata.uid != binding.uid
    if not is_let or (is_anew and pod.key in ground.refused):
        return "barred"
    return "unready" if is_anew and pod.key in ground.unready else "waits"


def _lost(
    journal: StartJournal, states: Collection[State], there: Mapping[PodKey, Pod], now: Instant, roll_forward_s: float
) -> str:
    """Why a start that is not whole can't become so, or not in time; "" while it may."""
    of_both = list(zip(journal.pods, states, strict=True))
    if any(_notes(names.RELEASE, there, journal)):
        return "its release was begun"
    if away := [binding for binding, state in of_both if state == "elsewhere"]:
        return f"the pod {away[0].name} was bound otherwise by others"
    if lost := [binding for binding, state in of_both if state == "stranded"]:
        return f"the node {lost[0].node} is gone, which the pod {lost[0].name} was to have"
    if barred := [binding for binding, state in of_both if state == "barred"]:
        return f"the pod {barred[0].name} may not be on the node {barred[0].node}, which it was to have"
    if now - journal.at >= roll_forward_s * 1000:
        short = [binding.name for binding, state in of_both if state != "there"]
        return f"{len(short)} of {len(states)} pods not bound {roll_forward_s:g} s after the first, such as {short[0]}"
    return ""


def _release(journal: StartJournal, there: Mapping[PodKey, Pod], why: str) -> ReleasePods | None:
    pods = [pod for key in _keys(journal) if (pod := there.get(key)) and _is_to_go(pod)]
    marked = frozenset(pod.metadata.uid for pod in pods if names.RELEASE in pod.metadata.annotations)
    return ReleasePods(journal.job, journal.attempt, tuple(map(_bound_pod, pods)), marked, why) if pods else None


def _is_to_go(pod: Pod) -> bool:
    return pod.holds and not pod.metadata.deletion_timestamp


def _notes(key: str, there: Mapping[PodKey, Pod], journal: StartJournal) -> Iterator[bool]:
    """Of each pod of a start that is there, whether it has this annotation."""
    return (key in pod.metadata.annotations for name in _keys(journal) if (pod := there.get(name)))


def _keys(journal: StartJournal) -> list[PodKey]:
    return [binding.key for binding in journal.pods]


def _bound_pod(pod: Pod) -> BoundPod:
    return BoundPod(*pod.key, pod.metadata.uid)
