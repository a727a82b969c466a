"""What the API says of idle jobs and of budgets: why a job waits or is warned, and how budgets stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest

from reconciler.api.guard import Guard
from reconciler.api.server import ApiServer
from reconciler.client import Client
from reconciler.documents.operations import Operations
from reconciler.lifecycle.jobs.budget_holds import BudgetSpent
from reconciler.model.budget import BudgetStanding
from reconciler.model.idle_policy import GpuActivityBelow, IdleEvidence, IdleExemption, IdlePolicy
from reconciler.protocols.ledger import IdleMark, Marks
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, QueueName, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec

LATER = Instant(2**42)
SPENT = BudgetStanding(
    budget="daily",
    origin="policies/b.yaml:3",
    subject="queue org",
    queue=QueueName("org"),
    user="",
    start=NOW,
    end=LATER,
    at=NOW,
    unit="GPU-hours",
    limit=Decimal(10),
    spent=Decimal("12.5"),
    unpriced=Decimal(0),
    percent=125,
    per_day=Decimal(3),
    over=Duration(3_600_000),
    runs_out_at=None,
    when_spent="hold-new",
)
JOB = JobName("job")


@pytest.fixture
def budgets() -> list[BudgetStanding]:
    return []


@pytest.fixture
def told(site: Site, budgets: list[BudgetStanding]) -> Iterator[Client]:
    services = replace(site.services(), budgets=lambda: tuple(budgets))
    with ApiServer(services, Guard(TOKEN, user="alice")) as server, Client(server.url, TOKEN) as client:
        client.submit(JOB, spec())
        yield client


def test_a_spent_budget_is_why_a_job_waits_with_its_line(told: Client, budgets: list[BudgetStanding]) -> None:
    budgets.append(SPENT)
    said = f"budget daily of queue org is spent (policies/b.yaml:3): no job starts until {LATER}"
    assert told.why(JOB).words == (said,)
    assert isinstance(told.job(JOB).block, BudgetSpent)
    budgets[0] = msgspec.structs.replace(SPENT, when_spent="no-borrowing")
    assert told.why(JOB).words[-1].startswith("budget daily of queue org is spent: 12.5 of 10 GPU-hours (125 %)")
    budgets[0] = msgspec.structs.replace(SPENT, spent=Decimal(3))
    assert not any("budget" in reason for reason in told.why(JOB).words)


def test_queues_say_how_budgets_stand(told: Client, budgets: list[BudgetStanding]) -> None:
    assert told.queues().budgets == ()
    budgets.append(SPENT)
    assert told.queues().budgets == (SPENT,)


def test_an_idle_job_says_what_follows_and_who_leaves_it_alone(site: Site, told: Client) -> None:
    (gpu,) = NODES[0].gpus[:1]
    site.bind(JOB, TaskPlacement("worker", 0, NODES[0].name, (gpu.id,)))
    mark = IdleMark("hoarding", "policies/i.yaml:3", "lend", NOW, NOW, LATER)
    site.store.ledger.mark(site.epoch(), JOB, 1, Marks(idle=mark))
    by = f"it has done nothing since {NOW}, by IdlePolicy hoarding (policies/i.yaml:3), and was warned at {NOW}"
    assert f"{by}; unless it does something, its GPUs count as borrowed at {LATER}" in told.why(JOB).words
    site.store.ledger.mark(site.epoch(), JOB, 1, Marks(idle=msgspec.structs.replace(mark, lent_at=LATER)))
    assert f"{by}; since {LATER} what it holds counts as borrowed" in told.why(JOB).words
    evidence = IdleEvidence(GpuActivityBelow(5, Duration(60_000)))
    exempt = (IdleExemption(LATER, "moves data", users=("alice",)),)
    site.operations = Operations(idle=(IdlePolicy("hoarding", evidence, exempt=exempt, origin="policies/i.yaml:3"),))
    alone = f"IdlePolicy hoarding (policies/i.yaml:3) leaves it alone until {LATER}: moves data"
    assert alone in told.why(JOB).words
