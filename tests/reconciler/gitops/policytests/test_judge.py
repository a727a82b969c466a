"""Every statement of a policy test: where it holds, and what is said where it does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reconciler.documents.files import Files
from reconciler.documents.repository import read_repository
from reconciler.gitops.policytests.conduct import PolicyTestResult, conduct
from solver.milp.highs import optimise
from solver.plan.violation import Violation
from tests.reconciler.documents.repository import queue

PRIORITY = "apiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {{name: {name}}}\nspec: {{value: {value}}}\n"
POLICY = {
    "policies/org.yaml": queue("org", "{quota: [{gpuType: H100, guaranteed: 32}]}"),
    "policies/a.yaml": queue("a", "{parent: org, quota: [{gpuType: H100, guaranteed: 16, max: 24}]}"),
    "policies/b.yaml": queue("b", "{parent: org, quota: [{gpuType: H100, guaranteed: 16}]}"),
    "policies/classes.yaml": f"{PRIORITY.format(name='low', value=1)}---\n{PRIORITY.format(name='high', value=9)}",
}
POOLS = "[{name: n, nodes: 4, gpuType: H100, nodesPerRack: 2}, {name: old, nodes: 1, gpuType: A100}]"

BORROWED = """[
  {name: lent, count: 4, queue: b, gpus: 8, gpuTypes: [H100], running: {since: 1h}},
  {name: mine, count: 2, queue: a, gpus: 8, gpuTypes: [H100], submittedAt: 10m}]"""
"""Queue b holds all H100, twice its guarantee, until a wants its own."""
FULL = """[
  {name: full, queue: a, gpus: 8, replicas: 3, gpuTypes: [H100], priorityClass: high, running: {since: 1h, on: [n-1, n-2, n-3]}},
  {name: more, queue: a, gpus: 8, gpuTypes: [H100], priorityClass: low},
  {name: huge, queue: a, gpus: 8, replicas: 4, gpuTypes: [H100]},
  {name: small, queue: b, gpus: 1, gpuTypes: [A100], runsFor: 20m}]"""
"""Queue a is at its ceiling."""
ELASTIC = """[
  {name: wide, queue: b, gpus: 8, replicas: 4, minReplicas: 1, gpuTypes: [H100], running: {since: 1h}},
  {name: mine, queue: a, gpus: 8, gpuTypes: [H100]}]"""
TWO = """[
  {name: low, queue: b, gpus: 8, replicas: 4, priorityClass: low, gpuTypes: [H100], waited: 2h, runsFor: 1h},
  {name: high, queue: b, gpus: 8, replicas: 4, priorityClass: high, gpuTypes: [H100], runsFor: 1h}]"""
LOST = "[{name: gang, queue: b, gpus: 8, replicas: 2, gpuTypes: [H100], running: {since: 1h, on: [n-1, n-2]}}]"
LOSE = "[{at: 10m, lose: [n-1]}]"


THEN = 12
"""The line of the first statement."""


def conducted(
    given: str,
    *then: str,
    lasts: str = "0s",
    events: str = "[]",
    pools: str = POOLS,
    policy: Mapping[str, str] = POLICY,
) -> PolicyTestResult:
    text = (
        "apiVersion: quorate.dev/v1\nkind: PolicyTest\nmetadata: {name: t}\nspec:\n  why: it matters\n"
        f"  for: {lasts}\n  events: {events}\n  given:\n    pools: {pools}\n    jobs: "
        + given.replace("\n", "")
        + "\n  then:\n"
        + "".join(f"    - {{{statement}}}\n" for statement in then)
    )
    files = {path: content.encode() for path, content in {**policy, "policies/tests/t.yaml": text}.items()}
    reading = read_repository(Files(files))
    compiled = reading.checked()
    return conduct(reading.tests[0], compiled, optimise)


OF_NAMESPACES = """[
  {name: own, queue: a, gpus: 1, gpuTypes: [H100], namespace: team-a},
  {name: other, queue: a, gpus: 1, gpuTypes: [H100], namespace: team-b},
  {name: bare, queue: a, gpus: 1, gpuTypes: [H100]}]"""


def test_jobs_of_a_namespace_may_be_in_the_queues_that_list_it() -> None:
    listing = {"policies/a.yaml": queue("a", "{parent: org, access: {namespaces: [{name: team-a}]}}")}
    then = (
        "job: own, must: start",
        "job: bare, must: start",
        "job: other, must: be-inadmissible, because: namespace-not-allowed",
    )
    assert conducted(OF_NAMESPACES, *then, policy=POLICY | listing).failures == ()


STATEMENTS = [
    (
        BORROWED,
        "1h",
        {
            "job: mine, must: start, within: 1m": "",
            "job: mine, must: start, within: 1m, gpuType: H100, inOne: rack": "",
            "job: mine, must: wait, because: awaits-release": "",
            "job: lent-4, must: leave, by: reclaim, beneficiary: mine, within: 10m": "",
            "job: lent-1, must: stay": "",
            "job: mine-1, must: start, before: mine-2": "mine-2 starts at 10m30s, mine-1 at 10m30s",
            "job: lent-1, must: keep, atLeast: 8": "",
            "queue: b, must: hold, gpuType: H100, atLeast: 16, atMost: 16": "",
            "queue: b, must: hold, atLeast: 16, after: 0s": "",
            "queue: b, must: have-share, share: 0.5": "",
            "queue: a, must: have-share, share: 0.41, after: 0s": "",
            "job: mine, must: start": "2 of 2 jobs: mine-1 does not start at once but at 10m30s",
            "job: mine, must: start, within: 29s": "starts only 30s after its submission, at 10m30s",
            "must: stay": "2 of 6 jobs: lent-3 is asked to leave at 10m, by reclaim for mine-",
            "job: lent-3, must: leave, by: preempt": "by reclaim for mine-1, which is not as asked",
            "job: lent-3, must: leave, within: 9m": "is asked to leave only at 10m; within 9m was asked",
            "job: lent-1, must: leave": "lent-1 is never asked to leave: it goes on with what it has",
            "job: lent-3, must: keep, atLeast: 8": "lent-3 holds 0 GPUs at 10m; at least 8 were asked",
            "queue: b, must: hold, atMost: 16, after: 0s": "queue b holds 32 GPUs at 0s; at most 16",
            "queue: b, must: hold, atMost: 16, after: 11m": "",
            "queue: b, must: have-share, share: 0.6": "16 of the 32 GPUs that all queues have, which is 50.0%",
            "queue: a, must: have-share, share: 0.42, after: 0s": "of the 31.866 GPU-hours that all queues have",
            "job: mine, must: wait, because: quota-max": "never told quota-max, but awaits-release",
        },
    ),
    (
        FULL,
        "0s",
        {
            "job: more, must: wait, because: quota-max": "",
            "job: huge, must: be-inadmissible, because: above-max": "",
            "job: small, must: start, gpuType: A100": "",
            "queue: org, must: hold, atLeast: 25": "",
            "job: more, must: start": "more never starts: it still waits at 0s",
            "job: huge, must: wait": "huge does not wait: it is refused",
            "job: more, must: be-inadmissible": "more is not refused: it still waits at 0s",
            "job: huge, must: be-inadmissible, because: held": "huge is never told held, but above-max",
            "job: small, must: start, gpuType: H100": "small starts on A100, not on H100",
        },
    ),
    (
        FULL,
        "4h",
        {
            "job: more, must: wait, because: quota-max, until: 3h": "",
            "must: stay": "",
            "queue: org, must: hold, atLeast: 24": "",
        },
    ),
    (
        ELASTIC,
        "1h",
        {
            "job: wide, must: shrink, by: reclaim, beneficiary: mine": "",
            "job: wide, must: keep, atLeast: 16": "",
            "job: wide, must: shrink, by: preempt": "is asked to give up",
            "job: wide, must: leave": "wide is never asked to leave",
        },
    ),
    (
        TWO,
        "3h",
        {
            "job: high, must: start, before: low": "",
            "queue: b, must: start, within: 1h": "",
            "job: low, must: start, before: high": "high starts at 0s, low at 1h",
            "job: low, must: wait, until: 2h": "low starts at 1h, and was to wait until 2h",
        },
    ),
    (
        TWO,
        "0s",
        {
            "priorityClass: high, must: start": "",
            "job: high, must: start, inOne: rack": "high starts over 2 racks: ",
        },
    ),
    (
        TWO,
        "1h",
        {
            "queue: a, must: stay": "it is about no job",
        },
    ),
]
"""Worlds, how long they last, and statements with what is said where they do not hold; "" where they do."""


@pytest.mark.parametrize(("given", "lasts", "statements"), STATEMENTS)
def test_statements_hold_or_say_what_happened_instead(given: str, lasts: str, statements: dict[str, str]) -> None:
    result = conducted(given, *statements, lasts=lasts)
    failures = {failure.line - THEN: failure for failure in result.failures}
    assert {failure.code for failure in result.failures} <= {"does-not-hold"}
    for index, (then, said) in enumerate(statements.items()):
        assert (index in failures) == bool(said), then
        assert said in (failures[index].message if index in failures else ""), then


def test_why_it_waits_is_told_with_its_place_in_git() -> None:
    (failure,) = conducted(FULL, "job: more, must: start").failures
    told = "at 0s more was told: quota-max: queue a holds 24 of max 24 H100 (policies/a.yaml:4); this job needs 8"
    assert failure.message.splitlines()[1] == told


def test_who_has_waited_longer_comes_first() -> None:
    alike = "queue: b, gpus: 8, replicas: 4, gpuTypes: [H100], runsFor: 1h"
    jobs = f"[{{name: a-new, {alike}}}, {{name: old, {alike}, waited: 1h}}]"
    assert conducted(jobs, "job: old, must: start", "job: a-new, must: wait").failures == ()


def test_a_gang_whose_node_is_lost_starts_anew_elsewhere() -> None:
    keeps = "job: gang, must: keep, atLeast: 16"
    held = "queue: b, must: hold, atLeast: 16, after: 0s"
    assert conducted(LOST, "must: stay", held, keeps, lasts="1h", events=LOSE).failures == ()
    full = LOST.replace("[{", "[{name: other, count: 2, queue: a, gpus: 8, running: {since: 1h, on: [n-3, n-4]}}, {")
    (failure,) = conducted(full, keeps, lasts="1h", events=LOSE).failures
    assert failure.message.startswith("gang holds 0 GPUs at 10m")


def test_who_is_cancelled_makes_room_and_what_is_restored_takes_work() -> None:
    jobs = TWO.replace(", runsFor: 1h", "")
    cancel = "[{at: 20m, cancel: [high]}]"
    assert conducted(jobs, "job: low, must: start, within: 20m", lasts="1h", events=cancel).failures == ()
    cordoned = f"{POOLS}\n    cordoned: [n-1]"
    late = "job: high, must: start, within: 5m"
    restore = "[{at: 5m, restore: [n-1]}]"
    assert conducted(jobs, late, "job: high, must: wait", lasts="1h", events=restore, pools=cordoned).failures == ()
    assert conducted(jobs, late, lasts="1h", pools=cordoned).failures != ()


def test_a_world_that_can_not_be_is_said_in_its_place() -> None:
    given = "[{name: wide, queue: b, gpus: 8, replicas: 5, gpuTypes: [H100], running: {since: 1h}}]"
    (failure,) = conducted(given, "must: stay").failures
    assert (failure.line, failure.code) == (THEN - 2, "given")
    assert failure.message == "wide can't run already: no room for 5 x 8 GPUs in the cluster"
    over = "[{name: over, queue: b, gpus: 8, runsFor: 30m, running: {since: 1h}}]"
    assert conducted(over, "must: stay").failures[0].message == "over ends 30m after its start"


def test_a_plan_that_breaks_a_rule_fails_as_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (Violation("double-booking", "n-1/0", "held twice"),)
    monkeypatch.setattr("reconciler.gitops.policytests.conduct.violations", lambda *_: found)
    (failure,) = conducted(TWO, "job: high, must: start").failures
    assert failure.code == "unlawful-plan"
    assert "double-booking n-1/0: held twice" in failure.message
    assert "a bug of Quorate" in failure.fix


def test_the_same_test_ends_the_same() -> None:
    first, second = (conducted(BORROWED, "must: stay", lasts="1h") for _ in range(2))
    assert first == second


IDLE_POLICY = (
    "apiVersion: quorate.dev/v1\nkind: IdlePolicy\nmetadata: {name: hoarding}\n"
    "spec: {queues: [a], idleWhen: {gpuActivity: {below: 5, for: 30m}}, action: lend, "
    "exempt: [{jobs: [spared], until: 2026-01-05T01:30:00Z, reason: moves data}]}\n"
)
IDLE_JOBS = """[
  {name: idle, queue: a, gpus: 1, gpuTypes: [H100], gpuActivity: 2},
  {name: busy, queue: a, gpus: 1, gpuTypes: [H100], gpuActivity: 60},
  {name: other, queue: b, gpus: 1, gpuTypes: [H100], gpuActivity: 0},
  {name: short, queue: a, gpus: 1, gpuTypes: [H100], gpuActivity: 0, runsFor: 20m},
  {name: spared, queue: a, gpus: 1, gpuTypes: [H100], gpuActivity: 0},
  {name: silent, queue: a, gpus: 1, gpuTypes: [H100]}]"""


def test_whom_an_idle_policy_warns() -> None:
    policy = POLICY | {"policies/idle.yaml": IDLE_POLICY}
    holds = (
        "job: idle, must: be-warned, within: 30m, action: lend",
        *(f"job: {name}, must: not-be-warned" for name in ("busy", "other", "short", "silent")),
        "job: spared, must: be-warned, within: 2h",
    )
    assert conducted(IDLE_JOBS, *holds, lasts="3h", policy=policy).failures == ()
    by = "by IdlePolicy hoarding"
    broken = {
        "job: idle, must: not-be-warned": "idle is warned at 30m (IdlePolicy hoarding, policies/idle.yaml:3)",
        "job: idle, must: be-warned, within: 10m": f"idle is warned at 30m {by}; within 10m of its start was asked",
        "job: idle, must: be-warned, action: end": f"idle is warned at 30m {by}, and lend follows; end was asked",
        "job: busy, must: be-warned": "busy is not warned: its GPUs are 60 % active, and IdlePolicy hoarding warns below 5 %",
        "job: other, must: be-warned": "other is not warned: no IdlePolicy is for it",
        "job: short, must: be-warned": "short is not warned: it would be warned at 30m, and does not run for so long in the test",
        "job: silent, must: be-warned": "silent is not warned: the test does not say how active its GPUs are, "
        "and what is not known is never idle",
        "job: spared, must: be-warned, within: 30m": f"spared is warned at 1h30m {by}; within 30m of its start was asked",
    }
    found = conducted(IDLE_JOBS, *broken, lasts="3h", policy=policy)
    assert [failure.message for failure in found.failures] == list(broken.values())
