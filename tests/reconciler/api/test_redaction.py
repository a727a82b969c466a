"""Nothing gets into a job's specification without somebody deciding who may read it."""

from __future__ import annotations

import msgspec

from reconciler.api.redaction import bare_spec
from solver.model.document import encode
from solver.model.shape import Shape
from solver.model.workload import Container, JobSpec, QueueName, SecretUse, TaskGroup

OPEN = {
    "queue", "task_groups", "priority_class", "topology", "time_limit", "checkpoint", "fallback_after", "type", "data",
    "idle_limit", "depends_on", "array", "retry_policy", "time_limit_warning", "stuck", "terminal",
    "finish_by", "finish_within",
}  # fmt: skip
OPEN_IN_GROUPS = {
    "name",
    "replicas",
    "shape",
    "min_replicas",
    "topology",
    "rejoin",
    "launcher",
    "nodes",
    "replica_step",
}
"""What everybody may read who sees the job. What is the team's own is left out by reconciler/api/redaction.py."""


def test_every_field_of_a_job_is_open_or_left_out() -> None:
    private = set(JobSpec.__struct_fields__) - OPEN
    private_in_groups = set(TaskGroup.__struct_fields__) - OPEN_IN_GROUPS
    assert (private, private_in_groups) == (
        {"command", "working_directory", "env", "secrets", "container"},
        {"command"},
    ), "say in OPEN or in bare_spec who may read it"


def test_what_is_left_out_is_gone() -> None:
    group = TaskGroup("worker", 1, Shape(), command=("s3cret",))
    spec = JobSpec(
        QueueName("q"),
        (group,),
        command=("s3cret",),
        working_directory="/s3cret",
        env={"s3cret": "s3cret"},
        secrets=(SecretUse("s3cret", env="X"),),
        container=Container("s3cret"),
    )
    assert b"s3cret" not in encode(bare_spec(spec))
    assert bare_spec(spec).task_groups == (msgspec.structs.replace(group, command=()),)
