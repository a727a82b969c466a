"""What the API says of checkpoints, and of jobs that name no known place for them."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.client import ApiError, Client
from reconciler.documents.operations import Operations
from reconciler.model.checkpoint_findings import WrongHash
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.checkpoint_record import CheckpointRecord
from solver.model.quantities import Duration, Memory
from solver.model.workload import Checkpoint, JobName
from tests.reconciler.api.conftest import NOW, Site, spec

LLAMA = JobName("llama")


def test_checkpoints_are_listed_newest_first(site: Site, client: Client) -> None:
    client.submit(LLAMA, spec())
    made = [
        CheckpointRecord(LLAMA, 1, step, "default", f"s3://b/{step}", 8, Memory(10), "sha256:ab", NOW)
        for step in (300, 400)
    ]
    for checkpoint in made:
        site.store.checkpoints.record(site.epoch(), checkpoint)
    site.store.checkpoints.judge(site.epoch(), made[1].key, (WrongHash("worker.3", "weights"),))
    corrupt, published = client.checkpoints("llama").items
    assert published == made[0]
    assert (corrupt.step, corrupt.state, corrupt.findings) == (400, "corrupt", (WrongHash("worker.3", "weights"),))
    with pytest.raises(ApiError, match="There is no job lama"):
        client.checkpoints("lama")


def test_a_job_that_names_no_known_checkpoint_policy_is_refused(site: Site, client: Client) -> None:
    saves = msgspec.structs.replace(spec(), checkpoint=Checkpoint(Duration(60_000), storage="fsat"))
    site.operations = Operations(checkpoints=(CheckpointPolicy("fast", "s3://b"),))
    with pytest.raises(ApiError, match=r"There is no CheckpointPolicy fsat\. Did you mean fast\?") as refused:
        client.submit(LLAMA, saves)
    assert (refused.value.status, refused.value.problem.code) == (422, "unknown-checkpoint-policy")
    assert site.store.jobs.jobs() == ()
