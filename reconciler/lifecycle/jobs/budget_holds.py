"""Which jobs a budget that is spent keeps from beginning. What runs goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from reconciler.model.budget import BudgetStanding
from reconciler.model.job_record import JobRecord
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree


class BudgetSpent(Document, frozen=True, tag_field="block", tag="budget"):
    """A budget of its queue, one above it or its user is spent, and starts no jobs until the next period."""

    budget: str
    origin: str
    subject: str
    until: Instant

    def __str__(self) -> str:
        return f"budget {self.budget} of {self.subject} is spent ({self.origin}): no job starts until {self.until}"


def held_by_budgets(
    standings: Sequence[BudgetStanding], records: Iterable[JobRecord], policy: Policy
) -> Mapping[JobName, BudgetSpent]:
    """The jobs that may not begin, each by the budget that lasts longest."""
    spent = [known for known in standings if known.is_spent and known.when_spent == "hold-new"]
    if not spent:
        return {}
    tree = QueueTree.of(policy)
    found: dict[JobName, BudgetSpent] = {}
    for record in records:
        own = list(_concerning(spent, tree.path(record.spec.queue), record.user))
        if own:
            last = max(own, key=lambda known: known.end)
            found[record.name] = BudgetSpent(last.budget, last.origin, last.subject, last.end)
    return found


def budget_words(standings: Sequence[BudgetStanding], path: Sequence[QueueName], user: str) -> Iterator[str]:
    """What a job that waits is told of budgets that are spent: where its queue borrows nothing meanwhile."""
    for known in _concerning(standings, path, user):
        if known.is_spent and known.when_spent == "no-borrowing":
            yield f"{known} ({known.origin}); until then the queue starts jobs inside its guarantee alone"


def _concerning(standings: Sequence[BudgetStanding], path: Sequence[QueueName], user: str) -> Iterator[BudgetStanding]:
    for known in standings:
        if known.queue in path if known.queue is not None else known.user == user:
            yield known
