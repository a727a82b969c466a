"""What is wrong with RetryPolicy documents: rests that shrink, signals that do not exist, rules that never decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from signal import Signals

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Path, Problem, did_you_mean
from reconciler.model.retry_policy import RetryPolicy, RetryRule

_SIGNALS = tuple(known.name for known in Signals)


def retry_problems(documents: Sequence[Declaration[RetryPolicy]]) -> Iterator[Problem]:
    """Everything that their schema can't say."""
    for policy in documents:
        backoff = policy.value.backoff
        if backoff.max < backoff.initial:
            message = f"the longest rest of {backoff.max} is shorter than the first of {backoff.initial}"
            at: Path = ("spec", "backoff", "max")
            yield policy.problem(at, "rest-shrinks", message, "Raise max, or lower initial.")
        for index, rule in enumerate(policy.value.rules):
            yield from _rule_problems(policy, ("spec", "rules", index), rule)
            earlier = next((place for place in range(index) if policy.value.rules[place].on == rule.on), None)
            if earlier is not None:
                message = f"rule {earlier + 1} is for the same failures and comes first"
                yield policy.problem(("spec", "rules", index), "unreachable-rule", message, "Keep one of them.")


def _rule_problems(policy: Declaration[RetryPolicy], at: Path, rule: RetryRule) -> Iterator[Problem]:
    for index, name in enumerate(rule.on.signals):
        if name not in _SIGNALS:
            message, fix = f"there is no signal {name}", did_you_mean(name, _SIGNALS)
            yield policy.problem((*at, "on", "signals", index), "unknown-signal", message, fix)
    if rule.on.exit_codes and rule.on.signals:
        message = "a rule of exit codes and signals is for those failures alone that are both"
        fix = "Write two rules, or 128 and the signal's number among the exit codes."
        yield policy.problem((*at, "on", "signals"), "never-both", message, fix)
