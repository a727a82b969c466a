"""Headline and verdict: what a change means for jobs, in one sentence each."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.analysis.reports.fates import fates
from reconciler.analysis.reports.review_outline import outline_of
from reconciler.analysis.reports.review_problems import review_problems
from reconciler.analysis.reports.text import text
from reconciler.model.review_findings import (
    DocumentChange,
    Entitlement,
    FieldChange,
    JobChange,
    QueueChange,
    Requeued,
    Review,
    Stranded,
    Unrestartable,
)
from solver.model.cluster import NodeName
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import JobName
from tests.reconciler.analysis.reports.reviews import (
    H100,
    NOW,
    PATHS,
    RANKING,
    VISION,
    job,
    losing,
    moved_quota,
    side,
    unchanged,
)


def said(found: Review) -> list[str]:
    """Headline and verdict."""
    return text(outline_of(found, PATHS, str)).splitlines()[:2]


def with_jobs(*jobs: JobChange) -> Review:
    return msgspec.structs.replace(unchanged(), jobs=jobs)


def spared(change: JobChange) -> JobChange:
    return msgspec.structs.replace(change, before="leaves", after="runs", loss=None, lost_before=True)


EVICTED, SHRUNK = losing("a", VISION, 8, 8, 2.0, 0, "b"), losing("a", VISION, 8, 4, 1.0, 0, "b")


@pytest.mark.parametrize(
    ("change", "effect", "verdict"),
    [
        (job("a", VISION, 8, "waits", "starts"), "1 job starts now that would not", "No job is worse off."),
        (job("a", VISION, 8, "starts", "waits"), "1 job no longer starts now", "some jobs wait longer."),
        (
            job("a", VISION, 8, "waits", "inadmissible"),
            "1 job becomes inadmissible",
            "some jobs can not start at all any more.",
        ),
        (job("a", VISION, 8, "inadmissible", "waits"), "becomes admissible and waits", "No job is worse off."),
        (job("a", VISION, 8, "waits", "waits", starts=(5, 4)), "1 job waits shorter", "effect"),
        (job("a", VISION, 8, "waits", "waits", starts=(5, None)), "1 job waits longer", "some jobs wait longer."),
        (job("a", VISION, 8, "waits", "waits", starts=(None, 5)), "1 job waits shorter", "effect"),
        (job("a", VISION, 8, "waits", "waits"), "no job fares differently", "The change has no effect"),
        (EVICTED, "1 job is evicted (8 GPUs, 2.0 GPU-hours of work lost)", "Running work is given up"),
        (SHRUNK, "1 job shrinks (4 GPUs, 1.0 GPU-hours of work lost)", "Running work is given up"),
        (spared(EVICTED), "1 job that runs is spared", "No job is worse off."),
        (
            msgspec.structs.replace(EVICTED, before="leaves", lost_before=True),
            "no job fares differently",
            "The change has no effect",
        ),
    ],
)
def test_a_change_in_a_sentence(change: JobChange, effect: str, verdict: str) -> None:
    headline, judged = said(with_jobs(change))
    assert effect in headline
    assert verdict in judged


def test_nodes_that_change_places_are_told() -> None:
    found = unchanged()
    head = msgspec.structs.replace(side("head", found.head.commit), inventory="another")
    assert said(msgspec.structs.replace(found, head=head))[1].startswith(
        "Nodes have changed places within their pools."
    )


def test_a_limit_that_was_below_before_is_not_of_the_change() -> None:
    found = moved_quota()
    assert "1 quota set below what is held" in said(found)[0]
    before = msgspec.structs.replace(found, queues=())
    assert "quota" not in said(before)[0]
    assert "Quotas that converge" in text(outline_of(before, PATHS, str))


def test_who_loses_most_is_named_first() -> None:
    jobs = [job(f"j{hours}", RANKING, 1, "waits", "waits", starts=(1, hours)) for hours in (2, 9, 4)]
    never = job("z", RANKING, 1, "waits", "waits", starts=(1, None))
    assert [one.job for one in fates(with_jobs(*jobs, never)).later] == ["z", "j9", "j4", "j2"]
    lost = [losing(f"l{hours}", VISION, 8, 8, float(hours), 0, None) for hours in (2, 9, 4)]
    assert [one.job for one in fates(with_jobs(*lost)).evicted] == ["l9", "l4", "l2"]


def test_fields_are_told_in_words() -> None:
    fields = (
        FieldChange("ordering.strict", "False", "True"),
        FieldChange("quota[A.b[C]].perUser", "4", None),
        FieldChange("users.weights[Ada]", "2", "3"),
        FieldChange("stopPolicy", None, "Hold"),
    )
    documents = (
        DocumentChange("Queue vision", "changed", fields),
        DocumentChange("MigGeometry small", "removed", ()),
        DocumentChange("SchedulingPolicy", "changed", (FieldChange("solver.timeLimit", "5s", "9s"),)),
    )
    lines = text(outline_of(msgspec.structs.replace(unchanged(), documents=documents), PATHS, str)).splitlines()
    assert lines[4:10] == [
        "  queue research/vision: ordering strict False → True",
        "  queue research/vision: at most per user A.b[C] not set (was 4)",
        "  queue research/vision: weight of user Ada 2 → 3",
        "  queue research/vision: stop policy Hold (was not set)",
        "  MIG geometry small is removed",
        "  scheduling policy: solver time limit 5s → 9s",
    ]


def test_what_runs_when_is_told_from_the_snapshot_on() -> None:
    lines = text(outline_of(moved_quota(), PATHS, lambda at: f"+{(at - NOW) // 3_600_000}h"))
    assert "until +1h, then preemptible jobs are evicted; foreseen to be kept again from +2h on" in lines


def test_the_worst_comes_first() -> None:
    """Whoever reads no further has read what the change costs, and sees it without unfolding anything."""
    found = outline_of(moved_quota(), PATHS, str)
    headline, _ = said(moved_quota())
    effects = headline.partition(": ")[2].split("; ")
    assert [effect.split(" ", 2)[2].partition(" (")[0] for effect in effects] == [
        *("broken", "is evicted", "shrinks", "set below what is held", "no longer starts now", "waits longer"),
        *("starts now that would not", "waits shorter"),
    ]
    assert [section.title for section in found.sections if section.weighty] == [
        *("Guardrails broken", "Documents", "Evicted by the change", "Shrunk by the change", "Quotas that converge"),
    ]


def test_queues_whose_jobs_wait_as_long_as_before_are_only_counted() -> None:
    (shorter,) = moved_quota().waits
    same = msgspec.structs.replace(
        shorter, queue=VISION, p50_after_s=shorter.p50_before_s, p90_after_s=shorter.p90_before_s
    )
    lines = text(outline_of(msgspec.structs.replace(moved_quota(), waits=(shorter, same)), PATHS, str)).splitlines()
    at = lines.index("Earliest start by queue")
    assert [line.split("  ")[1] for line in lines[at + 2 : at + 4]] == [
        "product/ranking",
        "1 queue in which jobs wait as long as before.",
    ]
    assert "Earliest start by queue" not in text(
        outline_of(msgspec.structs.replace(unchanged(), waits=(same,)), PATHS, str)
    )


def test_when_a_limit_is_kept_again_is_told_in_seconds_and_not_too_early() -> None:
    limit = msgspec.structs.replace(moved_quota().converging[0], kept_at=Instant(NOW + 194_839))
    lines = text(outline_of(msgspec.structs.replace(moved_quota(), converging=(limit,)), PATHS, str))
    assert "foreseen to be kept again from 2026-11-20T08:03:15Z on" in lines


def test_a_queue_that_is_removed_while_its_jobs_run_is_told() -> None:
    """Nobody is evicted, and yet: what they hold is no longer anybody's."""
    held = Entitlement(MilliGpu(64_000), MilliGpu(32_000), None, MilliGpu(32_000))
    queues = (QueueChange(VISION, H100, held, None), QueueChange(RANKING, H100, held, None))
    removed = DocumentChange("Queue vision", "removed", (), "policies/queues/vision.yaml:3")
    found = msgspec.structs.replace(unchanged(), documents=(removed,), queues=queues)
    assert said(found) == [
        "main → main: 1 queue removed while in use",
        "No running work is given up; a queue is removed that is in use.",
    ]
    lines = text(outline_of(found, PATHS, str))
    assert "queue research/vision holds 32 H100-SXM5-80GB: its jobs run on, count towards no quota, and can" in lines
    (problem,) = review_problems(found, PATHS)
    assert (problem.code, problem.severity, problem.line) == ("removed-in-use", "warning", 3)
    unused = msgspec.structs.replace(held, used=MilliGpu(0))
    assert not msgspec.structs.replace(found, queues=(QueueChange(VISION, H100, unused, None),)).orphaned


def test_jobs_on_nodes_that_are_removed_are_told() -> None:
    """A larger `count` may do it too: numbers are padded with zeros to equal length."""
    nodes = tuple(NodeName(f"n{number}") for number in range(6))
    pool = DocumentChange("NodePool h100", "changed", (FieldChange("nodes", "9", "6", "cluster-state/h100.yaml:9"),))
    one = Stranded(JobName("bert"), VISION, MilliGpu(48_000), nodes)
    found = msgspec.structs.replace(unchanged(), documents=(pool,), stranded=(one,))
    assert said(found) == [
        "main → main: 1 job runs on nodes that are removed",
        "No running work is given up; nodes are removed on which jobs run.",
    ]
    assert "bert  research/vision    48  n0, n1, n2, n3 and 2 more" in text(outline_of(found, PATHS, str))
    (problem,) = review_problems(found, PATHS)
    assert (problem.code, problem.severity) == ("node-removed-in-use", "warning")


def test_jobs_that_come_to_be_in_another_queue_are_told() -> None:
    default = Requeued(JobName("bert"), "core", "", MilliGpu(8000), VISION, None)
    local = Requeued(JobName("gpt"), "core", "main", MilliGpu(4000), None, VISION)
    found = msgspec.structs.replace(unchanged(), requeued=(default, local))
    assert said(found)[0] == "main → main: 2 jobs come to be in another queue"
    lines = text(outline_of(found, PATHS, str)).splitlines()
    at = lines.index("In another queue")
    assert [line.split() for line in lines[at + 2 : at + 4]] == [
        ["bert", "core", "8", "no", "queue", "research/vision", "none"],
        ["gpt", "core", "4", "main", "none", "research/vision"],
    ]


def test_running_jobs_that_could_never_start_again_are_told() -> None:
    """Those of which the same was true before come last, and are nobody's fault."""
    why, helps = (
        ("needs 8 H100; queue vision may never hold more than 4",),
        ("A max of 8 would do.",),
    )
    new = Unrestartable(JobName("bert"), VISION, MilliGpu(8000), why, helps)
    old = Unrestartable(JobName("gpt"), VISION, MilliGpu(8000), why, helps, already=True)
    found = msgspec.structs.replace(unchanged(), unrestartable=(new, old))
    assert said(found) == [
        "main → main: 1 job that runs could never start again",
        "No running work is given up; some jobs that run could never start again.",
    ]
    lines = text(outline_of(found, PATHS, str)).splitlines()
    at = lines.index("Run, and could never start again")
    assert lines[at + 1 : at + 4] == [
        "  Job   Queue            GPUs  Why",
        "  bert  research/vision     8  needs 8 H100; queue vision may never hold more than 4. A max of 8 would do.",
        "  They run on; once one is evicted, fails or moves to a new attempt, it waits for ever.",
    ]
    assert "Run, and could never start again under either" in lines[at + 4 :]
    (problem,) = review_problems(found, PATHS)
    assert (problem.code, problem.severity, problem.fix) == ("never-restarted", "warning", helps[0])
