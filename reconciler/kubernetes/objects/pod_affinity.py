"""What pods ask of where other pods are: affinity, anti-affinity and topology spread.

Towards pods that run already, each is a matter of nodes: some are left out. Within the gang it is what a job can say: at most so
many tasks in each domain, or all tasks in one. As the scheduler decides it: kubernetes.io, "Assigning Pods to Nodes" and "Pod
Topology Spread Constraints"; the latter's rule is max - min <= maxSkew over the domains that are eligible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import nsmallest
from itertools import pairwise

import msgspec

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.constraints import Names, Places
from reconciler.kubernetes.objects.neighbours import keeps_away, means
from reconciler.kubernetes.objects.remarks import KEPT_AWAY, Refusal, Remark
from reconciler.kubernetes.objects.wire import Pod, PodTerm, TopologySpread
from solver.model.cluster import Level, NodeName, SpreadLevel, is_wider
from solver.model.workload import Bundle, Spread

SIZE_DIGITS_MAX = 5
"""Of a slice, as of the bundles of jobs in documents. What people write may have more digits than are made a number at all."""
SLICE_KEYS = (
    names.KUEUE_LAYERS,
    names.KUEUE_SLICE,
    names.KUEUE_SLICE_SIZE,
    names.KAI_SEGMENT,
    names.KAI_SEGMENT_PREFERRED,
    names.KAI_SEGMENT_SIZE,
)
"""What pods say of slices of their gang."""
NAMED_MAX = 3
"""Pods, of those that leave no node, of which it is said which they are."""
_LOOSEN = "Prefer it instead of requiring it."


class _Layer(msgspec.Struct):
    topology: str
    size: int


def _is_size(written: str) -> bool:
    return written.isdecimal() and len(written) <= SIZE_DIGITS_MAX and int(written) > 0


@dataclass(slots=True)
class AffinityRules:
    """What was found for one task group. `spread` is the group's, `gang_spread` that of all tasks. Mutable: filled step by step.

    `emptied_by`: what left none of the nodes.
    """

    nodes: Names
    spread: Spread | None = None
    gang_spread: Spread | None = None
    required: Level | None = None
    preferred: list[Level] = field(default_factory=list)
    spreads_out: bool = False
    bundles: tuple[Bundle, ...] = ()
    emptied_by: str = ""
    refusals: list[Refusal] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def refuse(self, code: str, message: str, fix: str = _LOOSEN) -> None:
        """A hard wish that can't be kept."""
        self.refusals.append(Refusal(code, message, fix))


@dataclass(frozen=True, slots=True)
class Company:
    """A task group (`group`, all alike) within its gang, among all other pods on nodes.

    `gang_least`, `least`: how few of the gang, and of the group, may run.
    """

    places: Places
    gang: Sequence[Pod]
    group: Sequence[Pod]
    gang_least: int
    least: int

    def apart(self, nodes: Names) -> AffinityRules:
        """What the group asks, beginning with the nodes that it may be on."""
        found = AffinityRules(nodes)
        pod = self.group[0]
        for term in keeps_away(pod):
            self._away(found, term)
        for term in wants_near(pod):
            self._near(found, term)
        for constraint in pod.spec.topology_spread_constraints:
            self._spread(found, constraint)
        self._slices(found)
        self._wishes(found)
        self._repelled(found)
        if nodes and not found.nodes and not found.refusals:
            found.refuse(KEPT_AWAY, f"{found.emptied_by} leaves no node of those that it may be on")
        return found

    def _away(self, found: AffinityRules, term: PodTerm) -> None:
        if self._is_unknown(found, term):
            return
        others = self._others(term)
        taken = self._domains(term.topology_key, others)
        self._limit(
            found,
            term.topology_key,
            taken,
            lambda: f"required anti-affinity to {self._named(term, others)}",
            inside=False,
        )
        own = self._own(term)
        if len(own) > 1 or (own and len(self.gang) > 1):
            self._bound_to(found, own, term.topology_key, 1)

    def _near(self, found: AffinityRules, term: PodTerm) -> None:
        if self._is_unknown(found, term):
            return
        others, own = self._others(term), self._own(term)
        if others or not own:
            near = self._domains(term.topology_key, others)
            self._limit(found, term.topology_key, near, lambda: f"required affinity to {self._named(term, others)}")
            return
        if len(self.gang) == 1:  # the first of those that want each other near may be wherever there is such a domain
            self._limit(found, term.topology_key, {""}, lambda: "required affinity", inside=False)
            return
        level = as_level(self.places.level(term.topology_key))
        if level is None or len(own) != len(self.gang):
            message = f"requires pods of its own gang near it by {term.topology_key}"
            fix = "Let all pods of the gang require each other, by a label that is an island, a rack or a block."
            found.refuse("pod-affinity", message, fix)
            return
        found.required = level

    def _spread(self, found: AffinityRules, constraint: TopologySpread) -> None:
        key, pod = constraint.topology_key, self.group[0]
        if constraint.when_unsatisfiable != "DoNotSchedule":
            found.spreads_out |= self.places.level(key) == "node"
            if self.places.level(key) != "node":
                found.remarks.append(Remark("soft-spread", f"spreading by {key} where possible is not followed"))
            return
        term = _counted(constraint, pod)
        counts = self._others(term)
        self.places.note_grounds()
        eligible = {self._value(name, key) for name in self.places.selected(pod)} - {""}
        if len(self.gang) == 1:
            by_value = Counter(dict.fromkeys(eligible, 0))
            for name, count in counts.items():
                by_value[self._value(name, key)] += count
            fewest = min((by_value[value] for value in eligible), default=0)
            if constraint.min_domains and len(eligible) < constraint.min_domains:
                fewest = 0
            itself = bool(self._own(term))
            able = {value for value in eligible if by_value[value] + itself - fewest <= constraint.max_skew}
            self._limit(found, key, able, lambda: f"topology spread (maxSkew {constraint.max_skew})")
        elif counts:
            message = f"spreads by {key} together with pods that are not of its gang"
            found.refuse("spread-with-others", message, "Select the gang's pods alone, or say ScheduleAnyway.")
        else:
            self._limit(found, key, eligible, lambda: "topology spread")
            self._evenly(found, self._own(term), constraint, len(eligible))

    def _evenly(self, found: AffinityRules, own: Sequence[Pod], constraint: TopologySpread, domains: int) -> None:
        """At most so many in each domain that no two can differ by more than the skew, however they fall."""
        fewest = self.gang_least if len(own) == len(self.gang) else self.least
        tasks, skew = min(len(own), fewest), constraint.max_skew
        most = max(skew, (tasks + skew) // domains) if domains else 0
        if most * domains < tasks:
            message = (
                f"{tasks} pods on {domains} domains of {constraint.topology_key} can't be spread as a job can say it"
            )
            found.refuse(
                "uneven-spread",
                message,
                f"Use a maxSkew of {-(-tasks // domains) if domains else tasks}, or ScheduleAnyway.",
            )
        elif own:
            self._bound_to(found, own, constraint.topology_key, most)

    def _bound_to(self, found: AffinityRules, own: Sequence[Pod], key: str, most: int) -> None:
        """At most so many of the gang's own in each domain: of the group, where it means the group, or of all."""
        level = self.places.level(key)
        if level is None:
            found.refuse(
                "not-a-level",
                f"{key} is no level of the topology here",
                "Use kubernetes.io/hostname, or a rack or block.",
            )
            return
        bound = Spread(level, most)
        meant = {pod.key for pod in own}
        if meant == {pod.key for pod in self.gang}:
            earlier, found.gang_spread = found.gang_spread, bound
        elif meant == {pod.key for pod in self.group}:
            earlier, found.spread = found.spread, bound
        else:
            found.refuse(
                "part-of-gang", f"keeps away by {key} from some pods of its gang only", "Select one role, or all."
            )
            return
        if earlier not in (None, bound):
            found.refuse("several-spreads", "spreads its gang over several levels", "Keep one.")

    def _slices(self, found: AffinityRules) -> None:
        """So many consecutive pods each in one domain: slices, as Kueue calls them, or segments, as KAI does."""
        meta = self.group[0].metadata
        if layers := names.label_or_annotation(meta, names.KUEUE_LAYERS):
            self._layers(found, layers)
            return
        for written, size_key in (
            (names.KUEUE_SLICE, names.KUEUE_SLICE_SIZE),
            (names.KAI_SEGMENT, names.KAI_SEGMENT_SIZE),
            (names.KAI_SEGMENT_PREFERRED, names.KAI_SEGMENT_SIZE),
        ):
            key, size = names.label_or_annotation(meta, written), names.label_or_annotation(meta, size_key)
            if not key:
                continue
            within, is_wish = as_level(self.places.level(key)), written == names.KAI_SEGMENT_PREFERRED
            of_leader = written != names.KUEUE_SLICE and names.LWS_NAME in meta.labels
            if is_wish and (within is None or not _is_size(size) or of_leader):
                message = f"the wish for segments each in one domain of {key} is not followed"
                found.remarks.append(Remark("segments", message))
                return
            if within is None or not _is_size(size):
                message = f"requires slices of {size or 'no'} pods in one domain of {key}, which can't be said here"
                found.refuse("slices", message, f"Name a size and a label of islands, racks or blocks in {written}.")
                return
            if of_leader:
                message = "requires segments of a LeaderWorkerSet, whose leader counts to the first of them"
                found.refuse(
                    "slices", message, f"Write the annotation {names.KAI_REQUIRED} for the whole group instead."
                )
                return
            if is_wish:
                kept = found.bundles[0].within if found.bundles else None
                wish = within if is_wider(kept, within) else None
                found.bundles = (Bundle(int(size), kept, wish),) if kept or wish else ()
            else:
                found.bundles = (Bundle(int(size), within),)

    def _layers(self, found: AffinityRules, written: str) -> None:
        """Slices in slices, the largest first, as Kueue has them."""
        try:
            layers = msgspec.json.decode(written, type=list[_Layer])
        except msgspec.DecodeError:
            layers = []
        levels = [as_level(self.places.level(layer.topology)) for layer in layers]
        sizes = [layer.size for layer in layers]
        nest = all(0 < small < large and large % small == 0 for large, small in pairwise(sizes))
        fits = all(0 < size < 10**SIZE_DIGITS_MAX for size in sizes)
        if not layers or not all(levels) or not nest or not fits:
            message = f"requires slices {written[:200]}, which can't be said here"
            fix = "List sizes and labels of islands, racks or blocks, each size a multiple of the next one."
            found.refuse("slices", message, fix)
            return
        found.bundles = tuple(Bundle(size, level) for size, level in zip(sizes, levels, strict=True))

    def _wishes(self, found: AffinityRules) -> None:
        affinity = self.group[0].spec.affinity
        near = affinity.pod_affinity.preferred if affinity and affinity.pod_affinity else ()
        away = affinity.pod_anti_affinity.preferred if affinity and affinity.pod_anti_affinity else ()
        for wish in near:
            term = wish.pod_affinity_term
            level = as_level(self.places.level(term.topology_key))
            if level is None or len(self._own(term)) != len(self.gang):
                found.remarks.append(
                    Remark("preferred-pods", f"the wish to be near pods by {term.topology_key} is not followed")
                )
            else:
                found.preferred.append(level)
        for wish in away:
            term = wish.pod_affinity_term
            if self.places.level(term.topology_key) == "node" and self._own(term):
                found.spreads_out = True
            else:
                found.remarks.append(
                    Remark("preferred-pods", f"the wish to be away from pods by {term.topology_key} is not followed")
                )

    def _repelled(self, found: AffinityRules) -> None:
        """Anti-affinity counts both ways: running pods keep away those that they mean."""
        pod, own = self.group[0], {one.key for one in self.gang}
        for term, pods in self.places.crowd.repelling(pod):
            others = [other for other in pods if other.key not in own]
            taken = self._domains(term.topology_key, (NodeName(other.spec.node_name) for other in others))
            self._limit(found, term.topology_key, taken, partial(_anti_affinity_of, others), inside=False)

    def _is_unknown(self, found: AffinityRules, term: PodTerm) -> bool:
        selector = term.namespace_selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            return False
        found.refuse("namespace-selector", "selects pods by the labels of their namespaces", "List the namespaces.")
        return True

    def _own(self, term: PodTerm) -> Sequence[Pod]:
        return [pod for pod in self.gang if means(term, self.group[0].metadata.namespace, pod)]

    def _others(self, term: PodTerm) -> Counter[NodeName]:
        """How many pods of other gangs it means there are on each node."""
        meant = self.places.crowd.meant(term, self.group[0].metadata.namespace)
        own = Counter(NodeName(pod.spec.node_name) for pod in self._own(term) if pod.holds)
        return +(meant - own)

    def _value(self, node: NodeName, key: str) -> str:
        seen = self.places.seen.get(node)
        return seen.labels.get(key, "") if seen else ""

    def _domains(self, key: str, nodes: Iterable[NodeName]) -> set[str]:
        return {self._value(name, key) for name in nodes} - {""}

    def _limit(
        self, found: AffinityRules, key: str, values: set[str], why: Callable[[], str], *, inside: bool = True
    ) -> None:
        """To nodes whose domain is one of these, or none of these; a node without the label is in no domain."""
        self.places.note_grounds()
        left = frozenset(name for name in found.nodes if (self._value(name, key) in values) == inside)
        if found.nodes and not left:
            found.emptied_by = f"{why()} by {key}"
        found.nodes = left

    def _named(self, term: PodTerm, others: Counter[NodeName]) -> str:
        """The pods that a term means on these nodes."""
        at, own = self.group[0].metadata.namespace, {pod.key for pod in self.gang}
        on = (pod for name in nsmallest(NAMED_MAX, others) for pod in self.places.crowd.on(name))
        there = (pod for pod in on if pod.key not in own and means(term, at, pod))
        return _pods(there, others.total())


def _pods(pods: Iterable[Pod], count: int) -> str:
    """Some of so many pods, by their names."""
    named = ["/".join(key) for key in nsmallest(NAMED_MAX, (pod.key for pod in pods))]
    if not named:
        return "pods of which none is on a node"
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return f"pod{'s' * (count > 1)} {', '.join(named)}{more}"


def _anti_affinity_of(pods: Sequence[Pod]) -> str:
    return f"required anti-affinity of {_pods(pods, len(pods))}"


def as_level(level: SpreadLevel | None) -> Level | None:
    """The level that tasks can be kept together in; None for a node, which is none."""
    return None if level is None or level == "node" else level


def wants_near(pod: Pod) -> tuple[PodTerm, ...]:
    """Pods near which a pod has to be."""
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    return affinity.required if affinity else ()


def hard_spreads(pod: Pod) -> tuple[PodTerm, ...]:
    """Pods together with which a pod has to be spread."""
    return tuple(
        _counted(one, pod) for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == "DoNotSchedule"
    )


def _counted(constraint: TopologySpread, pod: Pod) -> PodTerm:
    """The pods that are spread together with a pod, by the label that they are spread by."""
    selector = constraint.label_selector
    if selector is None:
        return PodTerm(constraint.topology_key, None)
    same = {name: pod.metadata.labels[name] for name in constraint.match_label_keys if name in pod.metadata.labels}
    narrowed = msgspec.structs.replace(selector, match_labels={**selector.match_labels, **same})
    return PodTerm(constraint.topology_key, narrowed)
