"""The nodes that an import is told of, and the NodePool and Topology documents that they make."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

import msgspec

from reconciler.importers.draft import DocumentDraft
from reconciler.importers.slugs import Slugs, slug
from reconciler.importers.source import SourceFile
from reconciler.importers.text import cpu_text, memory_text
from reconciler.kubernetes.objects.nodes import seen_node
from reconciler.kubernetes.objects.wire import KubeNode, read
from reconciler.model.problem import START, InvalidDocumentsError, problem_at

_MIB: Final = 2**20
_DRAINED: Final = ("DRAIN", "DOWN", "FAIL", "MAINT", "FUTURE")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-._/A-Za-z0-9]*[A-Za-z0-9])?")
HOSTNAME: Final = "kubernetes.io/hostname"


class SourceNode(NamedTuple):
    """A machine as the source knows it. `cpu`: cores; `memory`: bytes; `pool`: "" where nothing says it.

    `partitions`: the partitions of Slurm that it is in; `features` likewise.
    """

    name: str
    gpu_type: str
    gpus: int
    cpu: Fraction
    memory: Fraction
    pool: str = ""
    labels: Mapping[str, str] = {}
    cordoned: bool = False
    partitions: frozenset[str] = frozenset()
    features: tuple[str, ...] = ()


class SourcePool(NamedTuple):
    """Nodes of one kind, which become a NodePool."""

    name: str
    nodes: tuple[SourceNode, ...]


def nodes_of(source: SourceFile) -> tuple[SourceNode, ...]:
    """The nodes in what `kubectl get nodes -o json` or `scontrol show nodes --json` printed. Raises InvalidDocumentsError."""
    fix = "Give what `kubectl get nodes -o json` or `scontrol show nodes --json` prints."
    try:
        found = msgspec.json.decode(source.raw)
    except msgspec.DecodeError as error:
        problem = problem_at(source.name, START, "nodes", f"not JSON: {error}", fix)
        raise InvalidDocumentsError([problem]) from error
    if isinstance(found, dict) and isinstance(found.get("items"), list):
        return _of_kubernetes(source.name, found["items"])
    if isinstance(found, dict) and found.get("kind") == "Node":
        return _of_kubernetes(source.name, [found])
    if isinstance(found, dict) and isinstance(found.get("nodes"), list):
        return tuple(_of_slurm(node) for node in found["nodes"] if isinstance(node, dict) and node.get("name"))
    said = (
        "`sinfo --json` prints groups of nodes"
        if isinstance(found, dict) and "sinfo" in found
        else "no nodes are in it"
    )
    raise InvalidDocumentsError([problem_at(source.name, START, "nodes", said, fix)])


def pools_of(nodes: Iterable[SourceNode], names: Slugs) -> tuple[SourcePool, ...]:
    """Nodes in pools: those with the same pool, GPUs, partitions and features, and in Slurm the same CPU and memory."""
    groups = defaultdict[tuple[Any, ...], list[SourceNode]](list)
    for node in sorted(nodes, key=lambda each: each.name):
        size = (node.cpu, node.memory) if node.partitions else ()
        groups[node.pool, node.gpu_type, node.gpus, node.partitions, node.features, size].append(node)
    found = []
    for key, members in sorted(groups.items(), key=lambda group: group[1][0].name):
        first = members[0]
        wanted = first.pool or (f"{first.gpu_type}-{first.gpus}" if first.gpus else "cpu")
        found.append(SourcePool(names.of(repr(key), wanted), tuple(members)))
    return tuple(found)


def pool_documents(pools: Iterable[SourcePool], origin: str) -> Iterator[DocumentDraft]:
    """A NodePool for each. Where nodes differ in CPU or memory, the least is declared: a comment says so."""
    for pool in pools:
        first = pool.nodes[0]
        cpu, memory = min(node.cpu for node in pool.nodes), min(node.memory for node in pool.nodes)
        spec: dict[str, Any] = {"gpuType": first.gpu_type, "gpusPerNode": first.gpus} if first.gpus else {}
        spec |= {"cpu": cpu_text(cpu), "memory": memory_text(memory)}
        if first.features:
            spec["labels"] = [f"feature/{feature}=true" for feature in first.features if _LABEL.fullmatch(feature)]
        if cordoned := [node_name(node.name) for node in pool.nodes if node.cordoned]:
            spec["cordoned"] = cordoned
        spec["nodes"] = {"names": [node_name(node.name) for node in pool.nodes]}
        comments = [f"From {origin}."]
        if any((node.cpu, node.memory) != (cpu, memory) for node in pool.nodes):
            comments.append("The nodes differ in CPU or memory: this is the least that any has.")
        yield DocumentDraft("NodePool", pool.name, f"cluster-state/{pool.name}.yaml", spec, comments)


def node_name(name: str) -> str:
    """A node's name as documents have it: lower case, hyphens for underscores."""
    return ".".join(slug(part) for part in name.split(".")) if name != name.lower() or "_" in name else name


class Tree(NamedTuple):
    """Where nodes lie: for each node the domains that contain it, the closest first."""

    levels: tuple[str, ...]
    places: Mapping[str, tuple[str, ...]]


def topology_document(pool: SourcePool, tree: Tree, comments: Sequence[str]) -> DocumentDraft | None:
    """The Topology of a pool, domain by domain; None where none of its nodes lies in any.

    `levels` are island, rack or block, the closest first; a node's places are as many, "" where it lies in none of a level.
    """
    names = Slugs("domain")
    for node in pool.nodes:
        names.of(node_name(node.name))  # A domain may not have the name of a node.
    members = defaultdict[tuple[str, ...], list[str]](list)
    for node in pool.nodes:
        places = tree.places.get(node.name, ())
        if any(places):
            members[places].append(node_name(node.name))
    if not members:
        return None
    domains = dict[str, dict[str, Any]]()
    for places, nodes in sorted(members.items()):
        _add_domains(domains, names, tree.levels, places, nodes)
    # The widest first: a reader finds a parent above its children.
    ordered = sorted(domains.values(), key=lambda each: (-tree.levels.index(each["level"]), each["name"]))
    spec = {"pool": pool.name, "domains": ordered}
    return DocumentDraft("Topology", pool.name, f"cluster-state/{pool.name}.yaml", spec, list(comments))


def _add_domains(
    domains: dict[str, dict[str, Any]],
    names: Slugs,
    levels: Sequence[str],
    places: Sequence[str],
    nodes: Sequence[str],
) -> None:
    """The domains on the way from the widest to the closest that some nodes lie in."""
    parent = ""
    for index in reversed(range(len(levels))):
        if not places[index]:
            continue
        key = "/".join(places[index:])
        known = domains.get(key)
        if known is None:
            known = domains[key] = {"level": levels[index], "name": names.of(f"{levels[index]}:{key}", places[index])}
            if parent:
                known["parent"] = domains[parent]["name"]
        parent = key
    domains[parent].setdefault("nodes", []).extend(nodes)


def _of_kubernetes(file: str, items: Sequence[Any]) -> tuple[SourceNode, ...]:
    found = []
    for index, item in enumerate(items):
        try:
            seen = seen_node(read(item, KubeNode))
        except msgspec.ValidationError as error:
            problem = problem_at(file, START, "nodes", f"items[{index}] is no Node: {error}")
            raise InvalidDocumentsError([problem]) from error
        nothing = Fraction(0)
        cpu, memory = seen.offered.get("cpu", nothing), seen.offered.get("memory", nothing)
        gpus = len(seen.gpus)
        cordoned = seen.wire.spec.unschedulable
        found.append(
            SourceNode(seen.name, seen.gpu_type if gpus else "", gpus, cpu, memory, seen.pool, seen.labels, cordoned)
        )
    return tuple(found)


def _of_slurm(node: Mapping[str, Any]) -> SourceNode:
    kind, gpus = gpus_of_gres(str(node.get("gres") or ""))
    state = node.get("state") or ""
    flags = [*(state if isinstance(state, list) else [state]), *(node.get("state_flags") or [])]
    cordoned = any(str(flag).upper().startswith(_DRAINED) for flag in flags)
    # What Slurm keeps for itself on a node is no job's.
    cores = _number(node.get("cpus")) - _number(node.get("specialized_cores"))
    memory = _number(node.get("real_memory")) - _number(node.get("specialized_memory"))
    features = node.get("features") or []
    listed = features.split(",") if isinstance(features, str) else features
    return SourceNode(
        str(node["name"]),
        kind,
        gpus,
        Fraction(cores),
        Fraction(memory * _MIB),
        cordoned=cordoned,
        partitions=frozenset(map(str, node.get("partitions") or [])),
        features=tuple(sorted(str(feature) for feature in listed if feature)),
    )


def gpus_of_gres(written: str) -> tuple[str, int]:
    """Type and number of the GPUs in a node's generic resources, as in `gpu:h100:8(S:0-1),nic:2`; ("", 0) where there are none.

    Of several types the first counts, with its own number.
    """
    found = dict[str, int]()
    depth, parts = 0, [""]
    for character in written:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        elif depth == 0 and character not in "()":
            parts[-1] += character
    for part in parts:
        name, *rest = part.strip().split(":")
        if name.lower() != "gpu":
            continue
        number = int(rest[-1]) if rest and rest[-1].isdecimal() else 1
        kind = rest[0] if rest and not rest[0].isdecimal() and rest[0] != "no_consume" else ""
        found[kind] = found.get(kind, 0) + number
    return next(iter(found.items()), ("", 0))


def _number(value: Any) -> int:
    """A number as Slurm's JSON has it: plain, or with whether it is set."""
    if isinstance(value, dict):
        value = value.get("number")
    return int(value) if isinstance(value, int | float) else 0
