"""Which queue and class a script has in a policy, and what is said of flags that went into neither."""

from __future__ import annotations

import pytest

from reconciler.documents.slurm.job import Submitter, job_of
from reconciler.documents.slurm.names import KnownNames
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.model.workload import QueueName
from solver.policy.policy import PriorityClass, Queue, Quota, policy_of

POLICY = policy_of(
    (
        *(Queue(QueueName(name)) for name in ("root", "gpu")),
        *(Queue(QueueName(name), QueueName("root")) for name in ("lab-7", "physics")),
        Queue(QueueName("physics-users"), QueueName("physics"), (Quota(GpuType("H100"), MilliGpu(0)),)),
    ),
    (PriorityClass("gpu-high", 3), PriorityClass("high", 2), PriorityClass("gpu", 1)),
)


@pytest.mark.parametrize(
    ("flags", "queue", "named", "told"),
    [
        ("-A Lab_7 -p gpu -q high", "lab-7", "gpu-high", []),
        ("-A physics -p gpu", "physics-users", "gpu", []),
        ("-A physics -p cpu", "physics-users", "", ["--partition"]),
        ("-A chemistry -p gpu", "gpu", "gpu", ["--account"]),
        ("-A chemistry -p cpu", "cpu", "", ["--account"]),
        ("-A root -p gpu", "gpu", "gpu", ["--account"]),
        ("-A lab-7 -p gpu -q low", "lab-7", "gpu", ["--qos"]),
        ("-p gpu -q high", "gpu", "gpu-high", []),
        ("-p gpu -q none", "gpu", "gpu", ["--qos"]),
        ("-A lab-7", "lab-7", "", []),
    ],
)
def test_the_account_says_the_queue_where_there_is_one_and_else_the_partition(
    flags: str, queue: str, named: str, told: list[str]
) -> None:
    batch = job_of(f"#!/bin/sh\n#SBATCH {flags}\ntrue\n", "run.sh", (), Submitter("/here", {}))
    assert batch.passed_over == ()
    placed = batch.placed(KnownNames.of(POLICY))
    spec = placed.document["spec"]
    assert (spec["queue"], spec.get("priorityClass", "")) == (queue, named)
    assert [(each.line, each.flag) for each in placed.passed_over] == [(2, flag) for flag in told]


@pytest.mark.parametrize("flags", ["-p gpu", "-q high", ""])
def test_no_policy_is_asked_for_what_is_plain(flags: str) -> None:
    batch = job_of(f"#!/bin/sh\n#SBATCH -n 1 {flags}\n", "run.sh", (), Submitter("/here", {}))
    assert batch.is_plain


def test_where_the_queue_is_said_the_account_is_passed_over() -> None:
    batch = job_of("#!/bin/sh\n#SBATCH -A physics\n", "run.sh", (), Submitter("/here", {})).placed(None)
    assert [each.flag for each in batch.passed_over] == ["--account"]
