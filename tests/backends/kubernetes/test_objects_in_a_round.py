"""Objects, a round over what they mean, and the plan judged: what is read here is what the solver understands."""

from __future__ import annotations

from solver.plan.check import violations
from solver.plan.plan import Bind
from solver.rules.policy import Queue, policy_of
from solver.solve import solve
from solver.world.quantities import Instant
from solver.world.snapshot import snapshot_of
from solver.world.workload import QueueName
from tests.backends.kubernetes.samples import Sent, cluster, node, pod
from tests.solver.worlds import quota_of

RACK = "cloud.provider.com/topology-rack"


def of_gang(name: str, many: int, gpus: int, spec: Sent | None = None, required: str = "") -> list[Sent]:
    said = {"quorate.dev/gang": name, "quorate.dev/gang-size": str(many)}
    said |= {"kueue.x-k8s.io/podset-required-topology": required} if required else {}
    return [pod(f"{name}-{n}", gpus, labels={"app": name}, annotations=said, spec=spec or {}) for n in range(many)]


def test_a_round_places_gangs_around_what_runs() -> None:
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
            ]
        }
    }
    nodes = [node(name, labels={RACK: name[0]}) for name in ("a1", "a2", "b1", "b2")]
    pods = [
        pod("runs", 4, on="a1", annotations={"quorate.dev/devices": "a1/0,a1/1,a1/2,a1/3"}),
        pod("theirs", 2, on="a2", spec={"schedulerName": "default-scheduler"}),
        *of_gang("rack", 2, 8, required=RACK),
        *of_gang("apart", 2, 4, {"affinity": apart}),
        *of_gang("large", 9, 8),
    ]
    seen = cluster(nodes, pods)
    snapshot = snapshot_of(Instant(0), seen.nodes, seen.jobs)
    policy = policy_of((Queue(QueueName("q"), quota=(quota_of("H100-SXM5-80GB", 32),)),))
    plan = solve(snapshot, policy, None)
    assert violations(snapshot, policy, plan) == ()
    where = {step.job: sorted(task.node for task in step.tasks) for step in plan.steps if isinstance(step, Bind)}
    assert where == {"vision.gang.rack": ["b1", "b2"], "vision.gang.apart": ["a1", "a2"]}
