"""The labels, annotations and resources that are understood, with where each is documented."""

from __future__ import annotations

from typing import Final

from reconciler.kubernetes.objects.wire import Meta

SCHEDULER: Final = "quorate"
"""`spec.schedulerName` of the pods that are Quorate's."""
NAMESPACE: Final = "quorate-system"
"""Where Quorate's own objects are, unless it is told otherwise."""

# Our own. People write the first eight, as labels or annotations (a label wins).
QUEUE: Final = "quorate.dev/queue"
PRIORITY_CLASS: Final = "quorate.dev/priority-class"
GANG: Final = "quorate.dev/gang"
GANG_SIZE: Final = "quorate.dev/gang-size"
ROLE: Final = "quorate.dev/role"
TIME_LIMIT: Final = "quorate.dev/time-limit"
POOL: Final = "quorate.dev/pool"
GPU_TYPE: Final = "quorate.dev/gpu-type"
# Written by Quorate alone, with a binding: what a pod holds (docs/kubernetes-binding.md).
DEVICES: Final = "quorate.dev/devices"
SHARE: Final = "quorate.dev/share"
SHARING: Final = "quorate.dev/sharing"
ATTEMPT: Final = "quorate.dev/attempt"
NEEDS: Final = "quorate.dev/needs"
"""With how many pods of its role, and of its gang, a pod was bound (objects/gang_needs.py)."""
LIMIT: Final = "quorate.dev/limit"
"""How long the gang may run in this attempt: fixed when it is bound, so that a later policy does not shorten it."""
GANG_PLAN: Final = "quorate.dev/gang-plan"
"""On the pod of a gang that was bound first: where all of them go; until all are there."""
RELEASE: Final = "quorate.dev/release"
"""On pods of a gang that could not be whole: why each is deleted."""
TOUCHED: Final = "quorate.dev/touched"
"""Another value each time that only a new resourceVersion is wanted."""
EPOCH: Final = "quorate.dev/epoch"
LEADER: Final = "quorate.dev/leader"
FENCED: Final = "quorate.dev/fenced"
"""A label of Bindings and Evictions: fence and scope judge those that have it, so that what they do never touches another's."""

# How a pod saves its work (objects/saves.py). People write the first three; the task or its sidecar the fourth once it has
# saved, or Quorate for it when its hook has answered; Quorate the fifth, when it asks for it.
CHECKPOINT_INTERVAL: Final = "quorate.dev/checkpoint-interval"
CHECKPOINT_GRACE: Final = "quorate.dev/checkpoint-grace"
CHECKPOINT_HOOK: Final = "quorate.dev/checkpoint-hook"
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
CHECKPOINTED: Final = "quorate.dev/checkpointed"
CHECKPOINT_BY: Final = "quorate.dev/checkpoint-by"

# What was asked of a gang, or promised to it (records.py).
EVICT: Final = "quorate.dev/evict"
PROMISE: Final = "quorate.dev/promise"

# On requests for nodes, as labels the first and as annotations the others (provisioning/requests.py).
PROVISIONING: Final = "quorate.dev/provisioning"
PROVISIONING_JOB: Final = "quorate.dev/provisioning-job"
PROVISIONING_FOR: Final = "quorate.dev/provisioning-for"
"""What the job asks for, as a digest: a job that asks for something else needs another request."""
PROVISIONING_TRY: Final = "quorate.dev/provisioning-try"
PROVISIONING_NODES: Final = "quorate.dev/provisioning-nodes"

# Our own on nodes: annotations of what is kept for others, and the key of a taint that keeps all others away.
HEADROOM_CPU: Final = "quorate.dev/headroom-cpu"
HEADROOM_MEMORY: Final = "quorate.dev/headroom-memory"
ONLY: Final = "quorate.dev/only"
MIG: Final = "quorate.dev/mig"
"""On nodes: which partitions of their GPUs Quorate asked for last, and what became of it (mig/change.py)."""

# NVIDIA: k8s-device-plugin (resources), gpu-feature-discovery (labels): docs/gpu-feature-discovery/README.md there.
GPU: Final = "nvidia.com/gpu"
GPU_SHARED: Final = "nvidia.com/gpu.shared"
MIG_PREFIX: Final = "nvidia.com/mig-"
PRODUCT: Final = "nvidia.com/gpu.product"
GPU_MEMORY: Final = "nvidia.com/gpu.memory"
REPLICAS: Final = "nvidia.com/gpu.replicas"
GPU_COUNT: Final = "nvidia.com/gpu.count"
# NVIDIA's MIG manager (github.com/NVIDIA/mig-parted, deployments/container/reconfigure-mig.sh).
MIG_CONFIG: Final = "nvidia.com/mig.config"
MIG_STATE: Final = "nvidia.com/mig.config.state"

# Kueue: kueue.sigs.k8s.io, reference "Labels and Annotations".
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
KUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
KUEUE_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"
KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_TOGETHER: Final = "kueue.x-k8s.io/podset-group-name"
KUEUE_LAYERS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
KUEUE_SLICE: Final = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"

# KAI-Scheduler: pkg/common/constants/constants.go, docs/gpu-sharing.
KAI_QUEUE: Final = "kai.scheduler/queue"
KAI_GROUP: Final = "pod-group-name"
KAI_SUBGROUP: Final = "kai.scheduler/subgroup-name"
KAI_FRACTION: Final = "gpu-fraction"
KAI_MEMORY: Final = "gpu-memory"
KAI_DEVICES: Final = "gpu-fraction-num-devices"
KAI_REQUIRED: Final = "kai.scheduler/topology-required-placement"
KAI_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"
KAI_SEGMENT: Final = "kai.scheduler/segment-topology-required-placement"
KAI_SEGMENT_PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"
KAI_SEGMENT_SIZE: Final = "kai.scheduler/segment-size"

# Volcano: volcano.sh/apis, pkg/apis/scheduling/v1beta1/labels.go, pkg/apis/batch/v1alpha1/labels.go.
VOLCANO_GROUP: Final = ("scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name")
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"
VOLCANO_JOB_QUEUE: Final = "volcano.sh/queue-name"
VOLCANO_TASK: Final = "volcano.sh/task-spec"

# YuniKorn: yunikorn.apache.org/docs, "Labels and Annotations in YuniKorn" and "Gang Scheduling". Of the names of an application the
# first counts.
YUNIKORN_APP: Final = ("yunikorn.apache.org/app-id", "applicationId", "spark-app-selector")
YUNIKORN_GROUPS: Final = "yunikorn.apache.org/task-groups"
YUNIKORN_GROUP: Final = "yunikorn.apache.org/task-group-name"
YUNIKORN_PARAMETERS: Final = "yunikorn.apache.org/schedulingPolicyParameters"

# Coscheduling (kubernetes-sigs/scheduler-plugins, pkg/coscheduling/README.md), its present label and the older, lightweight two.
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
LIGHTWEIGHT_GROUP: Final = "pod-group.scheduling.sigs.k8s.io/name"
LIGHTWEIGHT_LEAST: Final = "pod-group.scheduling.sigs.k8s.io/min-available"

# Controllers: LeaderWorkerSet (site reference "Labels, Annotations and Environment Variables"), JobSet
# (api/jobset/v1alpha2/jobset_types.go), Kubeflow's training operator and mpi-operator (constants.go of each API), KubeRay
# (ray-operator/controllers/ray/utils/constant.go), Job (kubernetes.io, "Well-Known Labels, Annotations and Taints").
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_ROLE: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_INDEX: Final = "jobset.sigs.k8s.io/job-index"
KUBEFLOW_NAME: Final = "training.kubeflow.org/job-name"
KUBEFLOW_ROLE: Final = "training.kubeflow.org/replica-type"
KUBEFLOW_JOB_ROLE: Final = "training.kubeflow.org/job-role"
"""Of the mpi-operator: `launcher` or `worker`. The training operator writes `master` alone, beside the replica type of each pod."""
KUBEFLOW_INDEX: Final = "training.kubeflow.org/replica-index"
RAY_CLUSTER: Final = "ray.io/cluster"
RAY_GROUP: Final = "ray.io/group"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"

EXCLUSIVE: Final = (
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)
"""Their controllers hold back most pods until one of them has a node."""

HOSTNAME: Final = "kubernetes.io/hostname"

LEADER_ROLE: Final = "leader"
WORKER_ROLE: Final = "worker"
"""Roles of pods: the first of a LeaderWorkerSet's group, and those of which nothing else is said."""


def label_or_annotation(meta: Meta, *keys: str) -> str:
    """The first of these that is written; of one key the label before the annotation; "" where there is none."""
    labels, annotations = meta.labels, meta.annotations
    for key in keys:
        written = labels.get(key) or annotations.get(key)
        if written:
            return written
    return ""
