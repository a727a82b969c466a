"""How a comparison with Slurm is printed."""

from __future__ import annotations

import pytest

from reconciler.cli.comparison_report import print_comparison
from reconciler.model.comparison import ComparedJob, EvictedBeside, ObservedComparison, StartCounts, UseBeside
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName


def test_a_comparison_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    at, of = Instant.parse("2026-11-29T10:00:00Z"), (QueueName("physics"), "ada", 4.0)
    found = ObservedComparison(
        at, at.after(3_600_000), 30_000, 118, 2, "squeue: no answer within 60 s",
        StartCounts(earlier=1, later=1, unseen=3, would_start=2, earlier_ms=840_000, evicted=1),
        UseBeside(64_000.0, 48_000.0, 56_000.0, 3_540_000, 60_000),
        (
            ComparedJob(JobName("train-1"), *of, at, at, at.after(840_000)),
            ComparedJob(JobName("fold-2"), *of, at, None, at.after(60_000), "needs 4 H100, 0 free"),
        ),
        (EvictedBeside(JobName("fold-9"), *of, at, "train-1", "reclaim"),),
        ("3 jobs with licences: rounds do not count them",),
    )  # fmt: skip
    print_comparison(found)
    text = " ".join(capsys.readouterr().out.split())
    for told in (
        "118, 30s apart, and 2 that failed (squeue: no answer within 60 s)", "1 job, by 14m in the median",
        "3 jobs that began between two looks", "75.0% by Slurm, 87.5% after each round", "59m, 1m not seen",
        "started it 14m earlier", "let it wait: needs 4 H100, 0 free", "fold-9", "3 jobs with licences",
    ):  # fmt: skip
        assert told in text, text
