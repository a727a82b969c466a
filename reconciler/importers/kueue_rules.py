"""What becomes of the fields of Kueue's objects that need no arithmetic. Written against v1beta1 and v1beta2 of Kueue 0.20."""

from __future__ import annotations

from typing import Final

from reconciler.importers.account import Rules

CLUSTER_QUEUE: Final[Rules] = (
    (("spec", "resourceGroups", "*", "coveredResources"), "carried", "spec.quota", "each has its own entries"),
    (("spec", "flavorFungibility"), "changed", "gpuTypes of jobs",
     "a job lists its GPU types in order and takes the first that has room; `fallbackAfter` says after how long"),
    (("spec", "admissionChecks"), "dropped", "",
     "jobs start without asking another controller: nodes must be there, and other clusters are not tried"),
    (("spec", "admissionChecksStrategy"), "dropped", "",
     "jobs start without asking another controller: nodes must be there, and other clusters are not tried"),
    (("spec", "concurrentAdmissionPolicy"), "dropped", "", "a job is decided on once in each round"),
)  # fmt: skip

LOCAL_QUEUE: Final[Rules] = (
    (("spec", "stopPolicy"), "dropped", "",
     "the namespace goes on: write stopPolicy at its Queue, which stops the other namespaces too"),
)  # fmt: skip

FLAVOR: Final[Rules] = (
    (("spec", "nodeTaints"), "carried", "", "taints of nodes are read from the nodes themselves"),
    (("spec", "tolerations"), "dropped", "", "no toleration is added to pods: they must tolerate the taints of their nodes"),
)  # fmt: skip

CONTROLLER: Final[Rules] = (
    (("integrations",), "dropped", "",
     "which kinds of jobs are seen is no setting: docs/kubernetes-objects.md lists them"),
    (("manageJobsWithoutQueueName",), "dropped", "", "a pod is scheduled by what its schedulerName says"),
    (("managedJobsNamespaceSelector",), "dropped", "", "`access.namespaces` of queues says which namespaces may use them"),
    (("resources",), "dropped", "", "resources are counted under the names that pods use"),
    (("multiKueue",), "dropped", "", "other clusters are not tried"),
    (("objectRetentionPolicies",), "dropped", "", "how long records are kept: keepRounds of the SchedulingPolicy"),
    (("featureGates",), "dropped", "", "there are no feature gates"),
    (("waitForPodsReady",), "changed", "startDeadline",
     "a gang that does not get ready in time is released whole, and waits again"),
    (("admissionFairSharing",), "changed", "usageHalfLife", "past use orders queues of the tree, not single resources by weight"),
    (("fairSharing", "preemptionStrategies"), "changed", "spec.reclaim",
     "a fair share takes back only where the least served thereby get more"),
    (("fairSharing",), "carried", "spec.reclaim", ""),
    (("apiVersion",), "carried", "", ""),
    (("kind",), "carried", "", ""),
    (("*",), "dropped", "", "how Kueue's own process runs: no policy"),
)  # fmt: skip
