"""CheckpointPolicy documents, and what a job says of its checkpoints."""

from __future__ import annotations

import pytest

from reconciler.documents.job import read_job
from reconciler.gitops.review.meaning import document_changes
from reconciler.lifecycle.checkpoints.turns import storage_of, turns, unknown_storage
from reconciler.model.checkpoint_policy import CheckpointPolicy, CheckpointRetention
from solver.model.quantities import Duration
from solver.model.workload import JobName, JobSpec
from tests.reconciler.documents.repository import POOL, codes, queue, reading

FILES = {"policies/a.yaml": queue("a", "{}"), "cluster-state/big.yaml": POOL}


def policy(spec: str, name: str = "default") -> str:
    return f"apiVersion: quorate.dev/v1\nkind: CheckpointPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def spec_of(checkpoint: str) -> JobSpec:
    text = (
        "apiVersion: quorate.dev/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  queue: a\n"
        f"  checkpoint: {checkpoint}\n  taskGroups: [{{name: w, replicas: 1, command: [x], shape: {{}}}}]\n"
    )
    return read_job(text.encode(), "job.yaml").spec


def test_policies_are_compiled_sorted_beside_what_rounds_read() -> None:
    files = FILES | {
        "policies/z.yaml": policy("{storage: 's3://b/z', retention: {keep: 5, keepEvery: 1d}, verify: false}", "z"),
        "policies/c.yaml": policy("{storage: 'file:///mnt/c', maxConcurrentCheckpoints: 2}"),
    }
    compiled = reading(files).checked()
    assert compiled.operations.checkpoints == (
        CheckpointPolicy("default", "file:///mnt/c", 2, origin="policies/c.yaml:3"),
        CheckpointPolicy(
            "z", "s3://b/z", 4, CheckpointRetention(5, Duration(86_400_000)), verify=False, origin="policies/z.yaml:3"
        ),
    )
    (change,) = document_changes(reading(FILES | {"policies/z.yaml": files["policies/z.yaml"]}).checked(), compiled)
    assert (change.document, change.change) == ("CheckpointPolicy default", "added")


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("{storage: 'file:///mnt/c'}", []),
        ("{storage: 's3://bucket'}", []),
        ("{storage: /mnt/c}", [("c.yaml:4:17", "malformed")]),
        ("{storage: 'file://mnt/c'}", [("c.yaml:4:17", "malformed")]),
        ("{storage: 'file:///mnt/../c'}", [("c.yaml:4:17", "malformed")]),
        ("{storage: 's3://key:secret@bucket/c'}", [("c.yaml:4:17", "credentials-in-url")]),
        ("{storage: 's3://b/c?token=secret'}", [("c.yaml:4:17", "credentials-in-url")]),
        ("{storage: 'simplecache::s3://b'}", [("c.yaml:4:17", "malformed")]),
        ("{}", [("c.yaml:4:1", "missing-field")]),
        ("{storage: 's3://b', retention: {keep: 0}}", [("c.yaml:4:45", "out-of-range")]),
        ("{storage: 's3://b', retention: {keepEvery: 0s}}", [("c.yaml:4:50", "malformed")]),
        ("{storage: 's3://b', maxConcurrentCheckpoints: 0}", [("c.yaml:4:53", "out-of-range")]),
    ],
)
def test_problems_are_found_in_their_place(spec: str, problems: list[tuple[str, str]]) -> None:
    assert codes(FILES | {"policies/c.yaml": policy(spec)}) == problems


@pytest.mark.parametrize("url", ["s3://key:hunter2@bucket/c", "s3://bucket/c?key=hunter2"])
def test_a_secret_in_a_url_is_not_told_again(url: str) -> None:
    found = reading(FILES | {"policies/c.yaml": policy(f"{{storage: '{url}'}}")})
    assert "hunter2" not in str(found.problems)


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        ("file:///mnt/c", True),
        ("file:///mnt/c/", True),
        ("file:///mnt/c/d", True),
        ("file:///mnt", True),
        ("file:///mnt/cd", False),
    ],
)
def test_no_two_policies_keep_one_folder(other: str, shared: bool) -> None:
    files = {
        "policies/c.yaml": policy("{storage: 'file:///mnt/c'}"),
        "policies/d.yaml": policy(f"{{storage: '{other}'}}", "d"),
    }
    assert codes(FILES | files) == ([("d.yaml:4:17", "shared-storage")] if shared else [])


def test_a_job_names_its_policy_or_uses_the_default_one() -> None:
    policies = {name: CheckpointPolicy(name, f"s3://{name}") for name in ("default", "other")}
    assert storage_of(spec_of("{interval: 1h, storage: other, signal: SIGUSR1}"), policies) == policies["other"]
    assert storage_of(spec_of("{interval: 1h}"), policies) == policies["default"]
    assert storage_of(spec_of("{interval: 1h}"), {}) is None
    assert storage_of(JobSpec(spec_of("{interval: 1h}").queue, ()), policies) is None


def test_a_job_that_names_no_known_policy_is_told_the_nearest() -> None:
    policies = [CheckpointPolicy("fast", "s3://b")]
    assert unknown_storage(spec_of("{interval: 1h, storage: fsat}"), policies) == (
        "There is no CheckpointPolicy fsat.",
        "Did you mean fast?",
    )
    assert unknown_storage(spec_of("{interval: 1h, storage: fast}"), policies) is None
    assert unknown_storage(spec_of("{interval: 1h}"), policies) is None


def test_no_more_jobs_write_at_once_than_their_storage_takes() -> None:
    policies = {"slow": CheckpointPolicy("slow", "s3://b", 2), "fast": CheckpointPolicy("fast", "s3://c", 9)}
    wanting = [(JobName(f"{storage}-{n}"), storage) for n in range(3) for storage in ("slow", "fast", "gone")]
    assert turns(wanting, ["slow"], policies) == ("slow-0", "fast-0", "gone-0", "fast-1", "gone-1", "fast-2", "gone-2")
    assert turns(wanting[:1], ["slow", "slow"], policies) == ()
