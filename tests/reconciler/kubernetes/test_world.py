"""A world that is told of changes one by one: equal to all objects at once, and only what has changed is made anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.objects.cluster import ClusterIndex, KubernetesCluster
from reconciler.kubernetes.objects.controllers import Controller, controller_of
from reconciler.kubernetes.objects.disruption import KubePriorityClass
from reconciler.kubernetes.objects.podgroups import Group, group_of
from reconciler.kubernetes.objects.queue_names import LocalQueue, NamespaceObject
from reconciler.kubernetes.objects.quotas import ResourceQuota
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel, cluster_of
from solver.model.document import encode
from solver.model.workload import JobName, QueueName
from solver.policy.namespace_rules import NO_RULES, NamespaceRules, QueueEntry
from solver.policy.policy import NamespaceAccess, NamespaceSelector
from tests.drawn import worlds
from tests.reconciler.kubernetes.samples import Sent, node, pod, queued

RACK = "cloud.provider.com/topology-rack"
BLOCK = "cloud.provider.com/topology-block"
MIG = "nvidia.com/mig-1g.10gb"
HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HAS_CLIQUE = {"key": "nvidia.com/gpu.clique", "operator": "Exists"}


def term(app: str, key: str, **said: Any) -> Sent:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **said}


SPECS: list[Sent] = [
    {},
    {},
    {"affinity": {"podAntiAffinity": {REQUIRED: [term("a", HOST)]}}},
    {"affinity": {"podAntiAffinity": {REQUIRED: [term("b", RACK), term("a", HOST, namespaceSelector={})]}}},
    {"affinity": {"podAffinity": {REQUIRED: [term("b", RACK, namespaces=["other"])]}}},
    {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term("a", RACK)},
        ]
    },
    {"nodeSelector": {RACK: "r1"}},
    {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 2, "preference": {"matchExpressions": [HAS_CLIQUE]}}]}}},
    {"tolerations": [{"key": "theirs", "operator": "Exists"}]},
    {"schedulerName": "default-scheduler"},
    {"schedulingGroup": {"podGroupName": "g"}},
    {"priorityClassName": "usual"},
    {"priorityClassName": "other"},
]
PODS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["p1", "p2", "p3", "p4", "p5"]),
        "namespace": st.sampled_from(["vision", "vision", "other"]),
        "spec": st.sampled_from(SPECS),
        "gang": st.sampled_from(["", "", "g"]),
        "queue": st.sampled_from(["q", "q", "local", "none"]),
        "source": st.sampled_from(["quorate.dev/gang", "batch.kubernetes.io/job-name"]),
        "app": st.sampled_from(["a", "b"]),
        "within": st.sampled_from(["", "", RACK, "nvidia.com/gpu.clique"]),
        "gpus": st.integers(0, 3),
        "mig": st.sampled_from([False, False, True]),
        "nics": st.sampled_from(["0", "0", "1", "2"]),
        "port": st.sampled_from([0, 0, 80]),
        "on": st.sampled_from(["", "", "n1", "n2", "n3"]),
        "phase": st.sampled_from(["Pending", "Running", "Running", "Succeeded"]),
        "devices": st.sampled_from(["", "n1/0", "n2/1,n2/2"]),
    }
)
NODES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["n1", "n2", "n3", "n4"]),
        "gpus": st.sampled_from([0, 2, 8]),
        "rack": st.sampled_from(["", "r1", "r2"]),
        "clique": st.sampled_from(["", "", "c1"]),
        "block": st.sampled_from(["", "", "b1"]),
        "type": st.sampled_from(["", "", "A100-SXM4-80GB"]),
        "ready": st.sampled_from(["True", "True", "False"]),
        "taints": st.sampled_from([[], [], [{"key": "theirs", "effect": "NoSchedule"}]]),
        "nics": st.sampled_from(["0", "2"]),
        "mig": st.sampled_from(["0", "0", "3"]),
    }
)
GROUPS = st.sampled_from(["gang-1", "gang-2", "basic"])
JOBS = st.sampled_from(["Indexed", "NonIndexed"])
CLASSES = st.tuples(st.sampled_from(["usual", "other"]), st.booleans())
LOCAL_QUEUES = st.tuples(st.sampled_from(["vision", "other"]), st.sampled_from(["a", "b"]))
RULES = st.sampled_from(
    [
        NamespaceRules(tuple(QueueEntry(QueueName(queue), entry) for queue, entry in entries))
        for entries in (
            (),
            (("a", NamespaceAccess("vision", default=True)),),
            (("a", NamespaceAccess("*", default=True)), ("b", NamespaceAccess("other", local_queues=("main",)))),
            (("b", NamespaceAccess("*", local_queues=("main",))), ("a", NamespaceAccess("vision", default=True))),
            (("b", NamespaceAccess(selector=NamespaceSelector({"team": "a"}), default=True, local_queues=("main",))),),
        )
    ]
)
LABELLED = st.tuples(st.sampled_from(["vision", "other"]), st.sampled_from(["a", "b"]))
Kind = Literal["pod", "node", "group", "controller", "priority_class", "local_queue", "namespace", "declare", "look"]


class Deed(NamedTuple):
    """Something is written, or deleted by its name; or somebody looks."""

    kind: Kind
    drawn: Any
    deletes: bool


def deeds(kind: Kind, drawn: st.SearchStrategy[Any]) -> st.SearchStrategy[Deed]:
    return st.builds(Deed, st.just(kind), drawn, st.sampled_from([False, False, True]))


DEEDS = st.lists(
    st.one_of(
        deeds("pod", PODS),
        deeds("pod", PODS),
        deeds("pod", PODS),
        deeds("node", NODES),
        deeds("group", GROUPS),
        deeds("controller", JOBS),
        deeds("priority_class", CLASSES),
        deeds("local_queue", LOCAL_QUEUES),
        deeds("namespace", LABELLED),
        deeds("declare", st.tuples(st.sets(st.sampled_from(["usual", "other"])), RULES)),
        deeds("look", st.none()),
    ),
    min_size=6,
    max_size=30,
)


def sent_pod(drawn: dict[str, Any], revision: int) -> Pod:
    queue = {"q": {}, "local": queued({"kueue.x-k8s.io/queue-name": "main"}), "none": queued({})}[drawn["queue"]]
    labels = {"app": drawn["app"], **queue, **({drawn["source"]: drawn["gang"]} if drawn["gang"] else {})}
    said = {"quorate.dev/devices": drawn["devices"], "kueue.x-k8s.io/podset-required-topology": drawn["within"]}
    written = {key: value for key, value in said.items() if value}
    asked = {"rdma/hca": drawn["nics"], MIG: str(int(drawn["mig"]))}
    sent = pod(
        drawn["name"],
        0 if drawn["mig"] else drawn["gpus"],
        on=drawn["on"],
        namespace=drawn["namespace"],
        phase=drawn["phase"],
        labels=labels,
        annotations=written,
        requests={key: value for key, value in asked.items() if value != "0"},
        spec=drawn["spec"],
        metadata={"resourceVersion": str(revision)},
    )
    port = {"containerPort": 80, "hostPort": drawn["port"]}
    sent["spec"]["containers"][0]["ports"] = [port] if drawn["port"] else []
    return read(sent, Pod)


def sent_node(drawn: dict[str, Any]) -> KubeNode:
    said = {RACK: drawn["rack"], BLOCK: drawn["block"], "nvidia.com/gpu.clique": drawn["clique"]}
    labels = {key: value for key, value in {**said, "quorate.dev/gpu-type": drawn["type"]}.items() if value}
    more = {
        "ready": drawn["ready"],
        "taints": drawn["taints"],
        "offers": {"rdma/hca": drawn["nics"], "pods": "3", MIG: drawn["mig"]},
    }
    return read(node(drawn["name"], drawn["gpus"], labels=labels, **more), KubeNode)


def sent_group(drawn: str) -> Group:
    policy = {"basic": {}} if drawn == "basic" else {"gang": {"minCount": int(drawn[-1])}}
    sent = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "vision"},
    }
    return group_of({**sent, "spec": {"schedulingPolicy": policy}})


def sent_job(drawn: str) -> Controller:
    sent = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "g", "namespace": "vision", "labels": queued({})},
    }
    return controller_of({**sent, "spec": {"parallelism": 2, "completions": 2, "completionMode": drawn}})


def sent_class(name: str, is_default: bool) -> KubePriorityClass:
    return read({"metadata": {"name": name}, "value": 1, "globalDefault": is_default}, KubePriorityClass)


def a_namespace(name: str, labels: dict[str, str]) -> NamespaceObject:
    """With the label that the API server gives it."""
    return read(
        {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}}, NamespaceObject
    )


class Told:
    """A world, and all objects that it was told of."""

    def __init__(self) -> None:
        self.world = ClusterModel()
        self.there: dict[Kind, dict[Any, Any]] = {
            "pod": {},
            "node": {},
            "group": {},
            "controller": {},
            "priority_class": {},
            "local_queue": {},
            "namespace": {},
        }
        self.classes: set[str] = set()
        self.rules = NO_RULES

    def tell(self, kind: Kind, key: object, after: Any) -> bool:
        before = self.there[kind].pop(key, None)
        if after is not None:
            self.there[kind][key] = after
        return bool(getattr(self.world, kind)(before, after)) if before or after else False

    def do(self, deed: Deed, revision: int) -> None:
        match deed.kind:
            case "pod":
                sent = sent_pod(deed.drawn, revision)
                self.tell("pod", sent.key, None if deed.deletes else sent)
            case "node":
                self.tell("node", deed.drawn["name"], None if deed.deletes else sent_node(deed.drawn))
            case "group":
                self.tell("group", "g", None if deed.deletes else sent_group(deed.drawn))
            case "controller":
                self.tell("controller", "g", None if deed.deletes else sent_job(deed.drawn))
            case "priority_class":
                name, is_default = deed.drawn
                self.tell("priority_class", name, None if deed.deletes else sent_class(name, is_default))
            case "declare":
                self.classes, self.rules = deed.drawn
                self.world.declare((), self.classes, self.rules)
            case "local_queue":
                namespace, queue = deed.drawn
                local = None if deed.deletes else LocalQueue(namespace, "main", queue)
                self.tell("local_queue", namespace, local)
            case "namespace":
                name, team = deed.drawn
                self.tell("namespace", name, None if deed.deletes else a_namespace(name, {"team": team}))
            case "look":
                self.world.cluster()

    def at_once(self) -> KubernetesCluster:
        there = self.there
        return cluster_of(
            there["node"].values(),
            there["pod"].values(),
            there["group"].values(),
            there["controller"].values(),
            priority_classes=there["priority_class"].values(),
            classes=self.classes,
            namespaces=self.rules,
            local_queues=there["local_queue"].values(),
            labelled=there["namespace"].values(),
        )


@worlds(250)
@given(DEEDS)
def test_after_any_changes_it_is_what_all_objects_are_at_once(drawn: list[Deed]) -> None:
    told = Told()
    for revision, deed in enumerate(drawn):
        told.do(deed, revision)
        if deed.kind == "look":
            assert told.world.cluster() == told.at_once()
    found, expected = told.world.cluster(), told.at_once()
    assert written(found) == written(expected)
    assert found.index == ClusterIndex.of(found.nodes, found.gangs)
    assert list(found.index.gangs) == sorted(gang.name for gang in found.gangs)


def test_what_is_looked_up_follows_gangs_that_lose_pods_and_sets_of_nodes_that_nobody_names() -> None:
    told = many()
    for name in ("t1", "t2"):
        tell_pod(told, pod(name, 1, annotations={"quorate.dev/gang": "pair", "quorate.dev/gang-size": "1"}))
        tell_pod(told, pod(f"in-{name}", 1, spec={"nodeSelector": {RACK: "r1"}}))
    found = told.world.cluster()
    assert found.index.gang_of["vision", "t2"] == "vision.gang.pair"
    (named,) = found.node_sets
    told.tell("pod", ("vision", "t2"), None)
    told.tell("pod", ("vision", "in-t1"), None)
    found = told.world.cluster()
    assert ("vision", "t2") not in found.index.gang_of
    assert found.node_sets == (named,)
    told.tell("pod", ("vision", "in-t2"), None)
    assert told.world.cluster().node_sets == ()
    told.tell("pod", ("vision", "t1"), None)
    assert ("vision", "t1") not in told.world.cluster().index.gang_of


def written(cluster: KubernetesCluster) -> bytes:
    """All that it says, to be compared with what another one does to the last byte."""
    return encode([cluster.nodes, cluster.gangs, cluster.remarks, cluster.node_sets])


@worlds(60)
@given(DEEDS, st.data())
def test_what_is_as_it_was_is_the_same_object(drawn: list[Deed], data: st.DataObject) -> None:
    told = Told()
    for revision, deed in enumerate(drawn):
        told.do(deed, revision)
    before = told.world.cluster()
    told.do(data.draw(deeds("pod", PODS)), len(drawn))
    after = told.world.cluster()
    objects = [*before.nodes, *before.jobs]
    for found in (*after.nodes, *after.jobs):
        assert all(found is known for known in objects if known == found)


def many() -> Told:
    """20 nodes of racks of 4, a gang of two GPU pods on each of 18 of them, and 10 single pods that wait."""
    told = Told()
    for number in range(20):
        told.tell("node", f"n{number}", read(node(f"n{number}", labels={RACK: f"r{number // 4}"}), KubeNode))
    for sent in many_pods():
        told.tell("pod", (sent["metadata"]["namespace"], sent["metadata"]["name"]), read(sent, Pod))
    told.world.cluster()
    return told


def many_pods() -> Iterator[Sent]:
    for number in range(18):
        for each in range(2):
            said = {"quorate.dev/gang": f"g{number}", "quorate.dev/gang-size": "2"}
            yield pod(f"g{number}-{each}", 2, on=f"n{number}", annotations=said, labels={"app": f"g{number}"})
    for number in range(10):
        yield pod(f"w{number}", 1, labels={"app": "waits"}, requests={"rdma/hca": "1"} if number == 9 else {})


def work_of(told: Told) -> tuple[int, int, int]:
    """Nodes, gangs gathered and gangs made anew since this was asked last."""
    told.world.cluster()
    work = told.world.work
    found = work.nodes, work.gathered, work.gangs
    work.nodes = work.gathered = work.gangs = 0
    return found


def tell_pod(told: Told, sent: Sent) -> bool:
    read_pod = read(sent, Pod)
    return told.tell("pod", read_pod.key, read_pod)


def test_what_pods_call_their_queues_follows_local_queues_and_the_policy() -> None:
    told = many()
    tell_pod(told, pod("local", 1, labels=queued({"kueue.x-k8s.io/queue-name": "main"})))
    tell_pod(told, pod("default", 1, labels=queued({})))

    def queues() -> list[str]:
        gangs = told.world.cluster().index.gangs
        jobs = [gangs[JobName(f"vision.pod.{name}")].job for name in ("local", "default")]
        return [job.spec.queue if job else "" for job in jobs]

    assert queues() == ["main", ""]
    assert told.tell("local_queue", "vision", LocalQueue("vision", "main", "a"))
    assert queues() == ["a", ""]
    work_of(told)
    assert told.tell("local_queue", "vision", LocalQueue("vision", "main", "b"))
    assert queues() == ["b", ""]
    assert work_of(told)[1:] == (1, 1), "the gang that calls it so"
    rules = NamespaceRules((QueueEntry(QueueName("c"), NamespaceAccess("*", default=True, local_queues=("main",))),))
    told.world.declare((), (), rules)
    assert queues() == ["b", "c"]
    told.tell("local_queue", "vision", None)
    assert queues() == ["c", "c"]
    told.world.declare(())
    assert queues() == ["main", ""]


def test_labels_of_a_namespace_are_followed() -> None:
    told = many()
    tell_pod(told, pod("local", 1, labels=queued({"kueue.x-k8s.io/queue-name": "main"})))
    tell_pod(told, pod("default", 1, labels=queued({})))
    access = NamespaceAccess(selector=NamespaceSelector({"team": "a"}), default=True, local_queues=("main",))
    told.world.declare((), (), NamespaceRules((QueueEntry(QueueName("c"), access),)))

    def seen() -> list[tuple[str, tuple[str, ...]]]:
        gangs = told.world.cluster().index.gangs
        jobs = [gangs[JobName(f"vision.pod.{name}")].job for name in ("local", "default")]
        return [(job.spec.queue, job.namespace_labels) if job else ("", ()) for job in jobs]

    assert seen() == [("main", ()), ("", ())]
    assert told.tell("namespace", "vision", a_namespace("vision", {"team": "a", "env": ""}))
    assert seen() == [("c", ("env=", "team=a"))] * 2
    work_of(told)
    assert not told.tell("namespace", "vision", a_namespace("vision", {"env": "", "team": "a"}))
    assert not told.tell("namespace", "empty", a_namespace("empty", {}))
    assert told.tell("namespace", "other", a_namespace("other", {"team": "a"}))
    assert work_of(told) == (0, 0, 0), "no gang is in it"
    assert told.tell("namespace", "vision", a_namespace("vision", {"team": "b"}))
    assert seen() == [("main", ("team=b",)), ("", ())]
    assert told.tell("namespace", "vision", None)
    assert seen() == [("main", ()), ("", ())]


def test_only_what_has_changed_is_made_anew() -> None:
    told = many()
    assert work_of(told) == (20, 28, 28)
    assert work_of(told) == (0, 0, 0)
    tell_pod(told, pod("w0", 1, on="n19", labels={"app": "waits"}))
    assert work_of(told) == (1, 1, 1), "a pod that was bound: its node and its gang"
    tell_pod(told, pod("new", 1))
    assert work_of(told) == (0, 1, 1), "a pod that waits: its gang"
    tell_pod(told, pod("theirs", 0, on="n3", spec={"schedulerName": "default-scheduler"}))
    assert work_of(told) == (1, 0, 0), "a pod of somebody else: its node"
    told.tell("pod", ("vision", "theirs"), None)
    assert work_of(told) == (1, 0, 0)
    told.tell("node", "n3", read(node("n3", labels={RACK: "r0"}, ready="False"), KubeNode))
    assert work_of(told) == (1, 0, 0), "a node that is not ready any more: itself"
    told.tell("node", "n20", read(node("n20", labels={RACK: "r4"}), KubeNode))
    assert work_of(told) == (1, 0, 0), "a node that joins: itself"


def test_who_asks_about_nodes_is_looked_at_again_once_the_answer_is_another() -> None:
    told = many()
    together = {
        "kueue.x-k8s.io/podset-required-topology": RACK,
        "quorate.dev/gang": "together",
        "quorate.dev/gang-size": "2",
    }
    for name in ("t1", "t2"):
        tell_pod(told, pod(name, 8, annotations=together))
    for rack in ("r0", "r1"):
        tell_pod(told, pod(f"in-{rack}", 1, spec={"nodeSelector": {RACK: rack}}))
    work_of(told)
    told.tell("node", "n19", read(node("n19", labels={RACK: "r0"}), KubeNode))
    assert work_of(told) == (1, 0, 1), "another node in r0: who is to be in r0"
    told.tell("node", "n0", read(node("n0", labels={RACK: "r0", "other": "label"}), KubeNode))
    assert work_of(told) == (1, 0, 1), "a node with another label: who is on it"
    told.tell("node", "n19", read(node("n19", labels={RACK: "r0", BLOCK: "b1"}), KubeNode))
    assert work_of(told) == (1, 0, 1), "r0 is in two blocks: who asks for a rack"
    told.tell("node", "n19", None)
    assert work_of(told) == (1, 0, 2), "and no more: that gang, and who is to be in r0"


def test_who_asks_about_others_is_looked_at_again_once_others_move() -> None:
    told = many()
    work_of(told)
    apart = {"affinity": {"podAntiAffinity": {REQUIRED: [term("waits", HOST)]}}}
    tell_pod(told, pod("alone", 1, on="n18", spec=apart))
    assert work_of(told) == (1, 1, 11), "those that wait are kept away by it; gangs of other labels are not"
    told.tell("pod", ("vision", "alone"), None)
    assert work_of(told) == (1, 1, 10)
    tell_pod(told, pod("near", 1, spec={"affinity": {"podAffinity": {REQUIRED: [term("g3", HOST)]}}}))
    assert work_of(told) == (0, 1, 1)
    told.tell("pod", ("vision", "g3-0"), None)
    assert work_of(told) == (1, 1, 2), "and whoever wants to be near it"


def test_nodes_are_looked_at_again_once_a_resource_is_asked_for_that_they_offer() -> None:
    told = many()
    work_of(told)
    for name in ("n4", "n5"):
        offers = {"rdma/hca": "4", "hugepages-2Mi": "1Gi"}
        told.tell("node", name, read(node(name, labels={RACK: "r1"}, offers=offers), KubeNode))
    port: Sent = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    tell_pod(told, pod("theirs", 0, on="n7", spec={"schedulerName": "default-scheduler", **port}))
    work_of(told)
    tell_pod(told, pod("pages", 1, requests={"hugepages-2Mi": "1Gi"}))
    assert work_of(told) == (2, 1, 1), "nobody asked for huge pages before: the nodes that have any"
    tell_pod(told, pod("more", 1, requests={"hugepages-2Mi": "1Gi"}))
    assert work_of(told) == (0, 1, 1)
    told.tell("pod", ("vision", "pages"), None)
    assert work_of(told) == (0, 1, 0), "another one asks for them still"
    told.tell("pod", ("vision", "more"), None)
    assert work_of(told) == (2, 1, 0), "and now none"
    tell_pod(told, pod("listens", 0, spec=port))
    assert work_of(told) == (1, 1, 1), "a port: the node on which pods of others listen on it"


def test_what_makes_no_difference_is_said_to_make_none() -> None:
    told = many()
    again = node("n1", labels={RACK: "r0"})
    again["metadata"]["resourceVersion"] = "8"
    assert not told.tell("node", "n1", read(again, KubeNode)), "a node that only says that it is alive"
    assert not tell_pod(told, pod("w1", 1, labels={"app": "waits"}, metadata={"resourceVersion": "8"}))
    (gang,) = [gang for gang in told.world.cluster().gangs if gang.name == "vision.pod.w1"]
    assert gang.members[0].resource_version == "8", "but what a binding names is the newest"
    theirs = {"schedulerName": "default-scheduler"}
    assert not tell_pod(told, pod("theirs", 0, spec=theirs))
    assert tell_pod(told, pod("theirs", 0, on="n1", spec=theirs))
    assert not tell_pod(told, pod("theirs", 0, on="n1", spec=theirs, metadata={"resourceVersion": "9"}))
    assert tell_pod(told, pod("theirs", 0, on="n1", spec=theirs, phase="Succeeded"))


def test_a_pod_that_slips_in_is_use_for_as_long_as_it_is_there() -> None:
    told = many()

    def gpus_of_n19() -> int:
        return len(next(known.gpus for known in told.world.cluster().nodes if known.name == "n19"))

    assert gpus_of_n19() == 8
    assert tell_pod(told, pod("slipped-in", 3, on="n19", spec={"schedulerName": "default-scheduler"}))
    assert gpus_of_n19() == 5
    told.tell("pod", ("vision", "slipped-in"), None)
    assert gpus_of_n19() == 8


def agrees(told: Told) -> KubernetesCluster:
    """What it all means, which is what all objects mean at once."""
    found = told.world.cluster()
    assert found == told.at_once()
    return found


def test_what_is_said_of_gangs_by_other_objects_counts_once_it_is_said() -> None:
    told = Told()
    told.tell("node", "n1", read(node("n1"), KubeNode))
    runs = pod("runs", 2, on="n1", labels=queued({"batch.kubernetes.io/job-name": "g"}))
    waits = pod("waits", 2, spec={"schedulingGroup": {"podGroupName": "g"}})
    for sent in (runs, waits):
        tell_pod(told, sent)
    before = agrees(told)
    assert {gang.name: gang.job is None for gang in before.gangs} == {
        "vision.pod.runs": True,
        "vision.podgroup.g": True,
    }
    assert len(before.nodes[0].gpus) == 6, "whoever is refused, its use is nobody's"
    named = controller_of({
        "apiVersion": "batch/v1", "kind": "Job", "spec": {},
        "metadata": {"name": "g", "namespace": "vision", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
    })  # fmt: skip
    assert told.tell("controller", "g", named)
    assert told.tell("group", "g", sent_group("gang-1"))
    after = agrees(told)
    assert {gang.name: gang.job is None for gang in after.gangs} == {
        "vision.pod.runs": False,
        "vision.podgroup.g": False,
    }
    assert len(after.nodes[0].gpus) == 8
    told.tell("group", "g", None)
    told.tell("controller", "g", None)
    assert agrees(told) == before


def test_an_island_that_comes_to_lie_in_two_racks_is_left_out_on_the_other_node_too() -> None:
    told = Told()
    clique = "nvidia.com/gpu.clique"
    for name in ("n1", "n2"):
        told.tell("node", name, read(node(name, labels={RACK: "r1", clique: "c1"}), KubeNode))
    assert [known.island for known in agrees(told).nodes] == ["c1", "c1"]
    told.tell("node", "n2", read(node("n2", labels={RACK: "r2", clique: "c1"}), KubeNode))
    assert [known.island for known in agrees(told).nodes] == ["", ""]


def test_what_one_gang_asked_and_another_asks_now_is_still_followed() -> None:
    told = many()
    near = {"affinity": {"podAffinity": {REQUIRED: [term("g3", HOST)]}}}
    tell_pod(told, pod("a-near", 1, spec=near))
    agrees(told)
    told.tell("pod", ("vision", "a-near"), None)
    tell_pod(told, pod("b-near", 1, spec=near))
    agrees(told)
    tell_pod(told, pod("g3-2", 1, on="n7", labels={"app": "g3"}))
    agrees(told)
    told.tell("pod", ("vision", "b-near"), None)
    agrees(told)
    tell_pod(told, pod("g3-2", 1, on="n8", labels={"app": "g3"}))
    agrees(told)
    tell_pod(told, pod("c-near", 1, spec=near))
    agrees(told)
    said = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    told_waiting = pod("w1", 1, labels={"app": "waits"}, metadata={"resourceVersion": "9"}, status=said)
    assert not tell_pod(told, told_waiting), "why it waits, as rounds have said it themselves"
    bound = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    assert tell_pod(told, pod("w1", 1, labels={"app": "waits"}, metadata={"resourceVersion": "10"}, status=bound))


def test_a_class_that_the_cluster_gives_to_all_pods_counts_where_the_policy_has_it() -> None:
    told = Told()
    told.tell("node", "n1", read(node("n1", 8), KubeNode))
    tell_pod(told, pod("plain", 1, spec={"priorityClassName": "usual"}))
    tell_pod(
        told, pod("labelled", 1, spec={"priorityClassName": "usual"}, labels={"quorate.dev/priority-class": "usual"})
    )

    def classes() -> dict[str, str]:
        jobs = told.world.cluster().jobs
        return {job.name.rpartition(".")[2]: job.spec.priority_class for job in jobs}

    assert classes() == {"plain": "usual", "labelled": "usual"}
    assert told.tell("priority_class", "usual", sent_class("usual", True))
    assert classes() == {"plain": "", "labelled": "usual"}
    told.world.declare((), ["usual"])
    assert classes() == {"plain": "usual", "labelled": "usual"}
    told.world.declare(())
    assert classes() == {"plain": "", "labelled": "usual"}
    assert told.tell("priority_class", "usual", sent_class("usual", False))
    assert classes() == {"plain": "usual", "labelled": "usual"}
    assert not told.tell("priority_class", "other", sent_class("other", False))


def test_a_gang_with_one_pod_from_before_the_default_is_not_of_several_classes() -> None:
    told = Told()
    told.tell("node", "n1", read(node("n1", 8), KubeNode))
    told.tell("priority_class", "usual", sent_class("usual", True))
    of_a_pair = {"quorate.dev/gang": "pair", "quorate.dev/gang-size": "2"}
    tell_pod(told, pod("p1", 1, annotations=of_a_pair, spec={"priorityClassName": "usual"}))
    tell_pod(told, pod("p2", 1, annotations=of_a_pair, spec={"priorityClassName": "named"}))
    (job,) = told.world.cluster().jobs
    assert job.spec.priority_class == "named"


def sent_quota(used: str, scopes: list[str] | None = None) -> ResourceQuota:
    counted = {
        "hard": {"requests.nvidia.com/gpu": "4", "requests.cpu": "100"},
        "used": {"requests.nvidia.com/gpu": used},
    }
    return read(
        {"metadata": {"name": "compute", "namespace": "vision"}, "spec": {"scopes": scopes or []}, "status": counted},
        ResourceQuota,
    )


def test_a_gang_whose_pods_a_quota_keeps_from_being_made_names_it() -> None:
    world = ClusterModel()
    world.node(None, read(node("n1"), KubeNode))
    said = {"quorate.dev/gang": "g", "quorate.dev/gang-size": "2"}
    world.pod(None, read(pod("a", 2, annotations=said), Pod))
    world.pod(None, read(pod("alone", 2), Pod))
    before: ResourceQuota | None = None

    def told(quota: ResourceQuota | None) -> tuple[bool, str]:
        nonlocal before
        differs, before = world.quota(before, quota), quota
        gang = next(gang for gang in world.cluster().gangs if gang.name == "vision.gang.g")
        return differs, str(gang.missing)

    world.cluster()
    full = (
        "waiting for 1 of 2 pods: ResourceQuota compute lets no more be made, 3 of 4 requests.nvidia.com/gpu are used"
    )
    assert told(sent_quota("3")) == (True, full)
    assert told(sent_quota("2")) == (True, "waiting for 1 of 2 pods")
    assert told(sent_quota("4", ["BestEffort"])) == (True, "waiting for 1 of 2 pods")
    assert told(sent_quota("4"))[1].endswith("4 of 4 requests.nvidia.com/gpu are used")
    world.pod(None, read(pod("b", 2, annotations=said), Pod))
    world.cluster()
    assert told(None) == (False, "None")
