"""How following the branch goes, as conditions that people and programs read."""

from __future__ import annotations

from typing import Literal

from reconciler.model.problem import Problem
from solver.model.document import Document

ConditionType = Literal["Ready", "Reconciling", "Stalled"]


class PolicyCondition(Document, frozen=True, omit_defaults=False):
    """One statement on how following the branch goes. Reasons are stable words that programs may key on."""

    type: ConditionType
    status: bool
    reason: str
    message: str


class Drift(Document, frozen=True, omit_defaults=False):
    """One figure of a fresh plan beside what was accepted, in words for people; `beyond`: it is more than that."""

    what: str
    accepted: str
    now: str
    beyond: bool


class PolicyStatus(Document, frozen=True, omit_defaults=False):
    """How following the branch goes.

    Ready: the newest revision is in force. Reconciling: it is not, and will be tried again. Stalled: it is not, and a
    person must act. `problems` are those of the revision last attempted; `acceptable`: an admin may accept it as it is.
    `drift`: what it would do beside what was accepted of it, where a plan was accepted.
    """

    conditions: tuple[PolicyCondition, ...]
    last_applied_revision: str
    last_attempted_revision: str
    problems: tuple[Problem, ...] = ()
    acceptable: bool = False
    drift: tuple[Drift, ...] = ()

    def condition(self, kind: ConditionType) -> PolicyCondition:
        """The condition of that type; there is always one of each."""
        return next(condition for condition in self.conditions if condition.type == kind)

    @property
    def truth(self) -> PolicyCondition:
        """The one condition that holds."""
        return next(condition for condition in self.conditions if condition.status)
