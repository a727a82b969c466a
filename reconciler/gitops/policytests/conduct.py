"""Conducts policy tests: the real solve round by round, every plan judged by the independent checker, then the statements."""

from __future__ import annotations

from typing import Literal

import msgspec

from reconciler.documents.declarations import Declaration
from reconciler.documents.policy_test import PolicyTest
from reconciler.documents.repository import Compiled
from reconciler.gitops.policytests.course import Course
from reconciler.gitops.policytests.judge import broken
from reconciler.gitops.policytests.replay import StagedReplay
from reconciler.gitops.policytests.world import GivenError, PolicyTestWorld, world_of
from reconciler.model.idle_policy import IdlePolicy
from reconciler.model.problem import Path, Problem
from solver.checker.check import violations
from solver.milp.optimiser import Optimiser
from solver.model.document import API_VERSION, Document
from solver.policy.policy import Policy

_VIOLATIONS_SHOWN_MAX = 5


class PolicyTestResult(Document, frozen=True, omit_defaults=False):
    """One test: whether all its statements held, and after how many rounds. `seconds`: how long it took to find out."""

    name: str
    file: str
    line: int
    passed: bool
    statements: int
    rounds: int
    failures: tuple[Problem, ...] = ()
    seconds: float = 0.0


class PolicyTestReport(Document, frozen=True, omit_defaults=False):
    """All tests that were conducted, sorted by name."""

    passed: bool
    tests: tuple[PolicyTestResult, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["PolicyTestReport"] = "PolicyTestReport"


def conduct(test: Declaration[PolicyTest], compiled: Compiled, optimiser: Optimiser | None) -> PolicyTestResult:
    """Hold the rounds of one test and judge it. Pure, but for the optimiser handed in."""
    try:
        world = world_of(test.value, compiled)
    except GivenError as error:
        return _result(test, 0, (test.problem(error.path, "given", error.problem, error.fix),))
    # A test does not read when a job might start, and it changes no decision.
    scheduling = msgspec.structs.replace(compiled.policy.scheduling, estimated_jobs=0)
    policy = msgspec.structs.replace(compiled.policy, scheduling=scheduling)
    return _judged(test, world, policy, compiled.operations.idle, optimiser)


def _judged(
    test: Declaration[PolicyTest],
    world: PolicyTestWorld,
    policy: Policy,
    idle: tuple[IdlePolicy, ...],
    optimiser: Optimiser | None,
) -> PolicyTestResult:
    course = Course.of(world, policy, test.value.lasts, idle)
    rounds = 0
    for moment in StagedReplay.of(world, test.value.events, policy, optimiser).moments(world.arriving, course.ends):
        if moment.plan is not None:
            rounds += 1
            found = violations(moment.snapshot, policy, moment.plan)
            if found:
                when = course.since_begin(moment.at)
                rules = "\n".join(map(str, found[:_VIOLATIONS_SHOWN_MAX]))
                message = f"the plan at {when} breaks a rule that no plan may break\n{rules}"
                fix = "This is a bug of Quorate and none of the policy: please report it with this test."
                return _result(test, rounds, (test.problem((), "unlawful-plan", message, fix),))
        course.follow(moment)
    failures = []
    for statement, message, why in broken(test.value, course):
        path: Path = ("spec", "then", statement)
        said = f"{message}\n{why}" if why else message
        failures.append(test.problem(path, "does-not-hold", said))
    return _result(test, rounds, tuple(failures))


def _result(test: Declaration[PolicyTest], rounds: int, failures: tuple[Problem, ...]) -> PolicyTestResult:
    line = test.place(("metadata", "name")).line
    return PolicyTestResult(test.name, test.file, line, not failures, len(test.value.then), rounds, failures)
