"""Reviews made by hand: a quota that is moved from one team to another, and reviews in which every name is somebody else's text."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.analysis.reports.paths import Paths
from reconciler.model.review_findings import (
    Ahead,
    Breach,
    Converging,
    DeviceChange,
    DocumentChange,
    Entitlement,
    FieldChange,
    Fragments,
    JobChange,
    Loss,
    Outcome,
    QueueChange,
    QueueWaits,
    Review,
    RevisionReviewed,
)
from solver.model.cluster import DeviceId, GpuType, MigInstance, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Certificate

NOW = Instant.parse("2026-11-20T08:00:00Z")
HOUR = 3_600_000
H100 = GpuType("H100-SXM5-80GB")
VISION, RANKING = QueueName("vision"), QueueName("ranking")
PATHS = Paths({"vision": ("research", "vision"), "ranking": ("product", "ranking")})


def gpus(number: int) -> MilliGpu:
    return MilliGpu.gpus(number)


def job(
    name: str,
    queue: QueueName,
    number: int,
    before: Outcome,
    after: Outcome,
    *,
    starts: tuple[int | None, int | None] = (None, None),
) -> JobChange:
    """A pending job that starts so many hours from now under the base and the head."""
    first, second = (None if hours is None else NOW.after(hours * HOUR) for hours in starts)
    return JobChange(JobName(name), queue, gpus(number), before, after, first, second)


def losing(name: str, queue: QueueName, number: int, gives: int, lost_h: float, at_h: int, by: str | None) -> JobChange:
    """A running job that gives up some of what it holds."""
    loss = Loss(
        NOW.after(at_h * HOUR),
        Duration(300_000),
        "reclaim" if by else "converge",
        gpus(gives),
        lost_h,
        JobName(by) if by else None,
        RANKING if by else None,
    )
    after: Outcome = "runs" if at_h else "shrinks" if gives < number else "leaves"
    return JobChange(JobName(name), queue, gpus(number), "runs", after, loss=loss)


def side(name: str, commit: str) -> RevisionReviewed:
    return RevisionReviewed(
        name, commit, f"meaning of {name}", f"policy of {name}", "inventory", Certificate("none", (), 0.0, "none", 0)
    )


def moved_quota() -> Review:
    """32 H100 go from vision to ranking."""
    return Review(
        base=side("main", "36a9f4c2d1b0" + "0" * 28),
        head=side("more-for-ranking", "9be10c77f4e2" + "0" * 28),
        snapshot="sha256:5ca1ab1e0000" + "0" * 52,
        cluster="sha256:c1",
        time=NOW,
        documents=(
            DocumentChange(
                "PriorityClass batch",
                "added",
                (FieldChange("sloClass", None, "preemptible"),),
                "policies/classes.yaml:3",
            ),
            DocumentChange(
                "Queue ranking",
                "changed",
                (FieldChange("quota[H100-SXM5-80GB].guaranteed", "64", "96"),),
                "policies/queues/ranking.yaml:3",
            ),
            DocumentChange(
                "Queue vision",
                "changed",
                (
                    FieldChange("quota[H100-SXM5-80GB].guaranteed", "64", "32", "policies/queues/vision.yaml:7"),
                    FieldChange("quota[H100-SXM5-80GB].max", None, "64", "policies/queues/vision.yaml:7"),
                ),
                "policies/queues/vision.yaml:3",
            ),
        ),
        jobs=(
            losing("bert", VISION, 32, 32, 12.5, 0, "finetune"),
            job("eval", VISION, 4, "starts", "waits", starts=(0, 3)),
            job("finetune", RANKING, 32, "waits", "starts", starts=(5, 0)),
            losing("resnet", VISION, 16, 8, 1.25, 2, None),
            job("sweep", RANKING, 8, "waits", "waits", starts=(6, 1)),
            job("tune", VISION, 8, "waits", "waits", starts=(2, None)),
        ),
        queues=(
            QueueChange(
                VISION,
                H100,
                Entitlement(gpus(64), gpus(64), None, gpus(96)),
                Entitlement(gpus(32), gpus(32), gpus(64), gpus(64)),
            ),
        ),
        converging=(Converging(VISION, H100, gpus(64), gpus(32), "preemptible", NOW.after(HOUR), NOW.after(2 * HOUR)),),
        waits=(QueueWaits(RANKING, 2, 2, 2, 18_000.0, 0.0, 21_600.0, 3_600.0),),
        fragments=(Fragments(H100, gpus(8), gpus(12), gpus(0), gpus(4)),),
        repartitioned=(
            DeviceChange(
                NodeName("n1"), DeviceId("n1/0"), None, (MigInstance("1g.10gb", 0), MigInstance("3g.40gb", 4))
            ),
        ),
        ahead=Ahead(NOW.after(48 * HOUR), 12, 14, complete=True, endless=1),
        breaches=(
            Breach(
                "maxEvictedGpuHours",
                "13.8 GPU-hours of work would be lost, at most 10",
                "Change less at once.",
                "policies/scheduling.yaml:9",
            ),
        ),
    )


def unchanged() -> Review:
    """Nothing differs, and one job waits."""
    found = moved_quota()
    return msgspec.structs.replace(
        found,
        head=side("main", found.base.commit),
        documents=(),
        jobs=(job("sweep", RANKING, 8, "waits", "waits", starts=(6, 6)),),
        queues=(),
        converging=(),
        waits=(),
        fragments=(),
        repartitioned=(),
        breaches=(),
    )


def of_strangers(names: Iterable[str]) -> Review:
    """Every name, message and place is one of these, in turn."""
    texts = tuple(names)
    given = iter(texts * (200 // len(texts) + 1))
    found = moved_quota()

    def text() -> str:
        return next(given)

    # The same for both: what is said of a limit depends on whether the change set it.
    queue, gpu_type = QueueName(text()), GpuType(text())
    return msgspec.structs.replace(
        found,
        base=side(text(), text()),
        head=side(text(), text()),
        snapshot=text(),
        documents=(
            DocumentChange(
                f"Queue {text()}", "changed", (FieldChange(f"quota[{text()}].max", text(), text()),), text()
            ),
            DocumentChange(text(), "added", (FieldChange(text(), None, text()),)),
        ),
        jobs=tuple(
            msgspec.structs.replace(
                one,
                job=JobName(text()),
                queue=QueueName(text()),
                reasons=(text(), text()),
                loss=one.loss
                and msgspec.structs.replace(one.loss, by=JobName(text()), by_queue=QueueName(text()), why=text()),
            )
            for one in found.jobs
        ),
        queues=tuple(msgspec.structs.replace(one, queue=queue, gpu_type=gpu_type) for one in found.queues),
        converging=tuple(msgspec.structs.replace(one, queue=queue, gpu_type=gpu_type) for one in found.converging),
        waits=tuple(msgspec.structs.replace(one, queue=QueueName(text())) for one in found.waits),
        fragments=tuple(msgspec.structs.replace(one, gpu_type=GpuType(text())) for one in found.fragments),
        repartitioned=(DeviceChange(NodeName(text()), DeviceId(text()), (MigInstance(text(), 0),), None),),
        breaches=(Breach(text(), text(), text(), text()),),
    )
