"""What slurm.conf, gres.conf and topologies say of the machines: nodes with their GPUs, partitions, domains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from reconciler.importers.account import ImportAccount
from reconciler.importers.inventory import SourceNode, Tree, gpus_of_gres
from reconciler.importers.slurm.files import GRES, TOPOLOGY
from reconciler.importers.slurm.hosts import hosts, split_list
from reconciler.importers.slurm.settings import NODE
from reconciler.importers.source import SourceRecord
from reconciler.model.problem import InvalidDocumentsError, problem_of

DEFAULT: Final = "default"
_MIB: Final = 2**20
_ALL: Final = "all"
_CLOSED: Final = ("drain", "down", "fail", "future")


@dataclass
class SlurmPartition:
    """A partition: its record, its fields with the defaults before it, and its nodes."""

    record: SourceRecord
    fields: Mapping[str, str]
    nodes: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Its name in Slurm."""
        return self.record.name

    def number(self, key: str, default: int) -> int:
        """A field that is a number."""
        written = self.fields.get(key, "")
        return int(written) if written.isdecimal() else default

    def listed(self, key: str) -> list[str]:
        """A field that is a list; [] for ALL, and where it is left out."""
        found = split_list(self.fields.get(key, ""))
        return [] if [each.lower() for each in found] == [_ALL] else found


@dataclass
class Machines:
    """Nodes by name, and partitions. `given`: the nodes come from a file of their own."""

    account: ImportAccount
    nodes: dict[str, SourceNode] = field(default_factory=dict)
    partitions: list[SlurmPartition] = field(default_factory=list)
    given: str = ""

    def read(self, records: Sequence[SourceRecord]) -> None:
        """Take nodes, GPUs and partitions from the records."""
        gpus = _gres_by_node(self.account, [record for record in records if record.kind == GRES])
        self._nodes([record for record in records if record.kind == "NodeName"], gpus)
        sets = self._sets([record for record in records if record.kind == "NodeSet"])
        self._partitions([record for record in records if record.kind == "PartitionName"], sets)
        for name, node in self.nodes.items():
            inside = frozenset(each.name for each in self.partitions if name in each.nodes)
            self.nodes[name] = node._replace(partitions=inside or node.partitions)

    def _nodes(self, records: Sequence[SourceRecord], gpus: Mapping[str, tuple[str, int]]) -> None:
        defaults: dict[str, str] = {}
        for record in records:
            if record.name.lower() == DEFAULT:
                defaults |= record.fields
                names = []
            else:
                names = place_hosts(record, "nodename")
            fields = {**defaults, **record.fields}
            for name in names:
                if not self.given:
                    self.nodes[name] = _node(record, name, fields, gpus)
            self._note_node(record)

    def _note_node(self, record: SourceRecord) -> None:
        if self.given:
            self.account.carried(record, (), "NodePool", f"nodes are those of {self.given}")
            return
        for key in (
            "nodename",
            "cpus",
            "procs",
            "sockets",
            "boards",
            "socketsperboard",
            "corespersocket",
            "threadspercore",
            "realmemory",
        ):
            self.account.carried(record, (key,), "NodePool")
        for key in ("corespeccount", "memspeclimit", "cpuspeclist"):
            self.account.carried(
                record, (key,), "NodePool", "what Slurm keeps for the system is left out of cpu and memory"
            )
        for key in ("feature", "features"):
            self.account.carried(
                record, (key,), "NodePool labels", "as feature/NAME=true, which jobs ask for in nodeLabels"
            )
        if record.text("gres").lower().count("gpu") > 1:
            note = "a pool has GPUs of one type: those of the first are declared, declare the others by hand"
            self.account.asked(record, ("gres",), "NodePool gpuType, gpusPerNode", note)
        self.account.carried(
            record, ("gres",), "NodePool gpuType, gpusPerNode", "resources other than GPUs are left out"
        )
        self.account.settle(record, NODE)

    def _sets(self, records: Sequence[SourceRecord]) -> dict[str, frozenset[str]]:
        found = {}
        for record in records:
            features = set(split_list(record.text("feature")))
            members = {name for name, node in self.nodes.items() if features & set(node.features)}
            found[record.name] = frozenset({*members, *(place_hosts(record, "nodes") if record.has("nodes") else ())})
            self.account.carried(record, (), "nodes of partitions")
        return found

    def _partitions(self, records: Sequence[SourceRecord], sets: Mapping[str, frozenset[str]]) -> None:
        defaults: dict[str, str] = {}
        for record in records:
            if record.name.lower() == DEFAULT:
                defaults |= {key: value for key, value in record.fields.items() if key != "partitionname"}
                self.account.carried(record, (), "the partitions below it")
                continue
            fields = {**defaults, **record.fields}
            nodes = set[str]()
            for part in split_list(fields.get("nodes", "")):
                nodes |= (
                    set(self.nodes) if part.lower() == _ALL else sets.get(part) or set(_hosts(record, "nodes", part))
                )
            self._note_missing(record, nodes)
            self.partitions.append(SlurmPartition(record, fields, frozenset(nodes)))

    def _note_missing(self, record: SourceRecord, nodes: set[str]) -> None:
        missing = sorted(nodes - set(self.nodes))
        if missing:
            shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
            self.account.asked(record, ("nodes",), "pools", f"nothing describes {len(missing)} of these nodes: {shown}")


def place_hosts(record: SourceRecord, key: str, written: str | None = None) -> list[str]:
    """The nodes that a field lists, or another text that stands there. Raises InvalidDocumentsError."""
    return _hosts(record, key, record.text(key) if written is None else written)


def _hosts(record: SourceRecord, key: str, written: str) -> list[str]:
    try:
        return hosts(written)
    except ValueError as error:
        place = f"{record.file}:{record.line_of((key,))}"
        fix = "Correct the list: n[001-016,019],m7."
        raise InvalidDocumentsError([problem_of(place, "host-list", f"{record.label}: {error}", fix)]) from error


def _node(
    record: SourceRecord, name: str, fields: Mapping[str, Any], gpus: Mapping[str, tuple[str, int]]
) -> SourceNode:
    kind, number = gpus_of_gres(fields.get("gres", ""))
    elsewhere, count = gpus.get(name) or gpus.get("") or ("", 0)
    kind, number = kind or elsewhere, number or count
    threads = _number(fields, "threadspercore", 1)
    sockets = _number(fields, "sockets", 0) or _number(fields, "boards", 1) * _number(fields, "socketsperboard", 1)
    cpus = _number(fields, "cpus", 0) or sockets * _number(fields, "corespersocket", 1) * threads
    cpus -= _number(fields, "corespeccount", 0) * threads
    if not fields.get("corespeccount") and fields.get("cpuspeclist"):
        cpus -= len(place_hosts(record, "cpuspeclist", f"[{fields['cpuspeclist']}]"))
    memory = _number(fields, "realmemory", 1) - _number(fields, "memspeclimit", 0)
    state = str(fields.get("state", "")).lower()
    features = sorted(split_list(fields.get("feature", "") or fields.get("features", "")))
    return SourceNode(
        name,
        kind,
        number,
        Fraction(max(1, cpus)),
        Fraction(max(1, memory) * _MIB),
        cordoned=state.startswith(_CLOSED),
        features=tuple(features),
    )


def _number(fields: Mapping[str, Any], key: str, default: int) -> int:
    written = str(fields.get(key, ""))
    return int(written) if written.isdecimal() else default


def _gres_by_node(account: ImportAccount, records: Sequence[SourceRecord]) -> dict[str, tuple[str, int]]:
    """Type and number of GPUs by node from gres.conf; "" stands for every node that is not named."""
    counted = defaultdict[str, dict[str, int]](dict)
    for record in records:
        account.carried(record, ("autodetect",), "NodePool", "GPUs are found on the node itself")
        if record.text("name").lower() != "gpu":
            account.dropped(record, (), "a generic resource other than GPUs: nothing counts it")
            continue
        number = _number(record.fields, "count", 0) or len(place_hosts(record, "file"))
        for name in place_hosts(record, "nodename") if record.has("nodename") else [""]:
            kinds, kind = counted[name], record.text("type")
            kinds[kind] = kinds.get(kind, 0) + number
        for key in ("nodename", "name", "type", "file", "count"):
            account.carried(record, (key,), "NodePool gpuType, gpusPerNode")
        if record.has("multiplefiles") or "mig" in record.text("type").lower():
            account.asked(record, ("multiplefiles",), "MigGeometry", "MIG instances: write a MigGeometry for the pool")
        account.dropped(record, (), "which cores and links a GPU has is read on the node itself")
    return {name: next(iter(kinds.items())) for name, kinds in counted.items()}


def tree_of(account: ImportAccount, records: Sequence[SourceRecord]) -> tuple[Tree, SourceRecord] | None:
    """Where nodes lie, and a record that says so: topology.yaml before topology.conf, as Slurm has it. None: nowhere."""
    files = [record for record in records if record.kind == TOPOLOGY]
    switches = [record for record in records if record.kind == "SwitchName"]
    blocks = [record for record in records if record.kind == "BlockName"]
    for record in (record for record in records if record.kind == "BlockSizes"):
        account.dropped(
            record, (), "jobs say how close they must be: blocks are islands, and have no sizes of their own"
        )
    if files:
        for record in (*switches, *blocks):
            account.dropped(record, (), "topology.yaml comes before topology.conf")
        return _tree_of_file(account, files)
    if switches:
        found = [(each.name, _listed(each, "switches"), _listed(each, "nodes")) for each in switches]
        for record in switches:
            for key in ("switchname", "switches", "nodes"):
                account.carried(record, (key,), "Topology domains")
            account.dropped(
                record, (), "the speed of a link is no part of it: `bandwidth` of the Topology says it by level"
            )
        return _switch_tree(found), switches[0]
    if blocks:
        for record in blocks:
            account.carried(record, (), "Topology domains")
        return Tree(("island",), {node: (each.name,) for each in blocks for node in _listed(each, "nodes")}), blocks[0]
    return None


def _tree_of_file(account: ImportAccount, files: Sequence[SourceRecord]) -> tuple[Tree, SourceRecord] | None:
    """Of several topologies the cluster's default counts, else the first."""
    record = next((each for each in files if each.get("cluster_default")), files[0])
    for other in files:
        if other is not record:
            account.dropped(other, (), "a pool has one topology: the cluster's default counts")
    account.carried(record, ("topology",), "Topology")
    account.carried(record, ("cluster_default",), "Topology")
    if record.has("tree"):
        switches = _texts(record.items("tree", "switches"), "switch", "children", "nodes")
        found = [(each["switch"], _split(record, each["children"]), _split(record, each["nodes"])) for each in switches]
        account.carried(record, ("tree",), "Topology domains")
        return _switch_tree(found), record
    if record.has("block"):
        note = "jobs say how close they must be: blocks are islands, and have no sizes of their own"
        account.dropped(record, ("block", "block_sizes"), note)
        account.carried(record, ("block",), "Topology domains")
        blocks = _texts(record.items("block", "blocks"), "block", "nodes")
        places = {node: (each["block"],) for each in blocks for node in _split(record, each["nodes"])}
        return Tree(("island",), places), record
    if record.has("flat"):
        account.carried(record, ("flat",), "", "nodes share nothing but the pool")
    for key in ("ring", "torus3d"):
        account.dropped(record, (key,), "domains are islands, racks and blocks: a ring or torus is none of them")
    return None


def _switch_tree(switches: Sequence[tuple[str, list[str], list[str]]]) -> Tree:
    """A leaf switch is a rack, the one above it a block. What is above that is left out: all nodes of a pool share it."""
    above = {child: name for name, children, _ in switches for child in children}
    places = {}
    for name, _, nodes in switches:
        for node in nodes:
            places[node] = (name, above.get(name, ""))
    return Tree(("rack", "block"), places)


def _listed(record: SourceRecord, key: str) -> list[str]:
    return place_hosts(record, key) if record.has(key) else []


def _split(record: SourceRecord, written: str) -> list[str]:
    return place_hosts(record, "topology", written)


def _texts(items: Sequence[Any], *keys: str) -> list[dict[str, str]]:
    """Of each mapping in a list these keys as text; "" where one is left out."""
    return [{key: str(each.get(key) or "") for key in keys} for each in items if isinstance(each, dict)]
