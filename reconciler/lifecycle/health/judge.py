"""From what speaks against a node to what it is fit for: pure, from what was remembered, what is seen and the policy.

What comes and goes does not make a node come and go: something that lasts counts once it has been so for as long as policy says,
with pauses of at most a quarter of that, and goes on counting until its time is over, measured from when it was seen last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from reconciler.lifecycle.health.signs import Sign
from reconciler.model.health_policy import Action, HealthPolicy
from reconciler.model.health_record import FindingKey, FindingKind, HealthFinding, NodeHealth, PartHealth, PartState
from solver.model.quantities import Duration, Instant

PAUSE_LEAST: Final = Duration(30_000)
"""Facts are told every few seconds: a pause as short as this says nothing."""

_AT_ONCE: Final = Duration(0)
_SEVERITY: Final[tuple[Action, ...]] = ("ignore", "suspect", "cordon", "drain")
_STATES: Final[dict[Action, PartState]] = {"suspect": "suspect", "cordon": "cordoned", "drain": "drained"}


class HealthRule(NamedTuple):
    """What follows from findings of a kind that have been so for `held`."""

    action: Action
    held: Duration = _AT_ONCE
    is_final: bool = False
    """Only a person ends it."""

    @property
    def pause(self) -> int:
        """How long what is not seen may still be so, in milliseconds."""
        return max(PAUSE_LEAST, self.held // 4)


_NO_RULE: Final = HealthRule("ignore")
"""Of a finding of which policy says nothing any more."""


def rule_of(policy: HealthPolicy, key: FindingKey) -> HealthRule:
    """The rule of a finding."""
    known = rules_of(policy).get(key.kind)
    return known if known is not None else _named_rules(policy).get((key.kind, key.subject), _NO_RULE)


@lru_cache(maxsize=8)
def _named_rules(policy: HealthPolicy) -> Mapping[tuple[FindingKind, str], HealthRule]:
    """The rules that policy names itself, by what they are about."""
    return {
        **{("condition", rule.subject): HealthRule(rule.action, rule.held) for rule in policy.conditions},
        **{("taint", rule.subject): HealthRule(rule.action, rule.held) for rule in policy.taints},
        **{("label", rule.subject): HealthRule(rule.action, rule.held) for rule in policy.labels},
    }


@lru_cache(maxsize=8)
def rules_of(policy: HealthPolicy) -> Mapping[FindingKind, HealthRule]:
    """The rule of every kind of finding that has but one."""
    nic, xid, ecc = policy.nic, policy.xid, policy.ecc
    straggler = max(policy.straggler.action, policy.straggler.several, key=_SEVERITY.index)
    return {
        "lost": HealthRule(policy.lost, policy.node_lost_after),
        "nic-down": HealthRule(nic.action, nic.down_for),
        "nic-slow": HealthRule(nic.action, nic.down_for),
        "straggler": HealthRule(straggler, policy.straggler.held),
        "throttled": HealthRule(policy.throttle.action, policy.throttle.held),
        "uncorrectable": HealthRule(ecc.uncorrectable),
        "remap-pending": HealthRule(ecc.remap_pending),
        "remap-failed": HealthRule(ecc.remap_failed),
        "xid-application": HealthRule(xid.application),
        "xid-reset": HealthRule(xid.reset),
        "xid-drain": HealthRule(xid.drain),
        "xid-replace": HealthRule(xid.replace, is_final=True),
        "gpu-lost": HealthRule(policy.gpu_lost),
    }


def due_times(records: Iterable[NodeHealth], policy: HealthPolicy) -> Iterator[Instant]:
    """When something follows from time alone: what lasts becomes a finding, and what was found is over."""
    for record in records:
        yield from (
            finding.since.after(rule_of(policy, finding.key).held)
            for finding in record.findings
            if not finding.confirmed
        )
        yield from (part.until for part in record.parts if part.until is not None)


def judge(before: NodeHealth, signs: Iterable[Sign], told: bool, policy: HealthPolicy, now: Instant) -> NodeHealth:
    """A node's health from now on. `told`: its hardware was told of, so that what is not among the signs is not so."""
    seen = {sign.key: sign for sign in signs if rule_of(policy, sign.key).action != "ignore"}
    known = {finding.key: finding for finding in before.findings if rule_of(policy, finding.key).action != "ignore"}
    followed = (
        _seen(known.get(key), seen[key], rule_of(policy, key), now)
        if key in seen
        else _unseen(known[key], rule_of(policy, key), told, now)
        for key in sorted(known.keys() | seen.keys())
    )
    findings = tuple(_pardoned(finding, before) for finding in followed if finding is not None)
    lasting = tuple(_lasting(findings, seen, policy, now))
    parts = tuple(_parts(lasting, before, policy, now))
    return msgspec.structs.replace(before, findings=lasting, parts=parts)


def _seen(known: HealthFinding | None, sign: Sign, rule: HealthRule, now: Instant) -> HealthFinding:
    if sign.mark is not None:
        if known is not None and known.mark is not None and sign.mark <= known.mark:
            return known
        at = now if sign.at is None else sign.at
        return HealthFinding(*sign.key, at, at, sign.detail, sign.mark, confirmed=True)
    # Where it is said since when it is so, that is believed: nothing looked all the time.
    since = now if sign.at is None else min(now, sign.at)
    paused = known is not None and not known.counts and since - known.seen_at > rule.pause
    if known is None or paused:
        return HealthFinding(*sign.key, since, now, sign.detail, confirmed=now - since >= rule.held)
    # Not kept anew in every pass: often enough to tell a pause from the time between two looks.
    fresh = now - known.seen_at >= rule.pause // 2
    confirmed = known.confirmed or now - known.since >= rule.held
    if not fresh and confirmed == known.confirmed:
        return known
    return msgspec.structs.replace(known, seen_at=now, detail=sign.detail, confirmed=confirmed)


def _unseen(known: HealthFinding, rule: HealthRule, told: bool, now: Instant) -> HealthFinding | None:
    if known.counts:
        return known
    if known.mark is not None:
        return None if told else known
    return known if now - known.seen_at <= rule.pause else None


def _pardoned(finding: HealthFinding, before: NodeHealth) -> HealthFinding:
    """A user has let the node take work again all the same, or a test that began after it was passed."""
    at, trial = before.forgiven_at or Instant(0), before.trial
    if trial is not None and trial.passed and finding.part in trial.parts:
        at = max(at, trial.at)
    forgiven = (finding.seen_at if finding.mark is not None else finding.since) <= at
    return msgspec.structs.replace(finding, forgiven=True) if forgiven and not finding.forgiven else finding


def _lasting(
    findings: tuple[HealthFinding, ...], seen: Mapping[FindingKey, Sign], policy: HealthPolicy, now: Instant
) -> Iterator[HealthFinding]:
    """Without those that are over; what happened once, and is still told of, is known for what it is."""
    for finding in findings:
        until = _until(finding, findings, policy)
        if not finding.counts or until is None or now < until or _is_tested(finding, findings, policy):
            yield finding
        elif finding.key in seen:
            yield msgspec.structs.replace(finding, forgiven=True)


def _until(finding: HealthFinding, findings: Iterable[HealthFinding], policy: HealthPolicy) -> Instant | None:
    """When a finding stops to count, unless it is seen again; None: when a person says so."""
    if rule_of(policy, finding.key).is_final:
        return None
    is_mild = _action(finding, findings, policy) == "suspect"
    return finding.seen_at.after(policy.suspect_ttl if is_mild else policy.bad_node_ttl)


def _is_tested(finding: HealthFinding, findings: Iterable[HealthFinding], policy: HealthPolicy) -> bool:
    """Its time alone does not end it."""
    return policy.test is not None and _action(finding, findings, policy) == "drain"


def _action(finding: HealthFinding, findings: Iterable[HealthFinding], policy: HealthPolicy) -> Action:
    """What follows from a finding beside the others of its node."""
    if finding.kind != "straggler":
        return rule_of(policy, finding.key).action
    accusers = sum(other.kind == "straggler" and other.counts for other in findings)
    return policy.straggler.several if accusers > 1 else policy.straggler.action


def _parts(
    findings: tuple[HealthFinding, ...], before: NodeHealth, policy: HealthPolicy, now: Instant
) -> Iterator[PartHealth]:
    known = {part.part: part for part in before.parts}
    counting = [(finding, _action(finding, findings, policy)) for finding in findings if finding.counts]
    for name in sorted({finding.part for finding, action in counting if action != "ignore"}):
        own = [(finding, action) for finding, action in counting if finding.part == name]
        worst = max((action for _, action in own), key=_SEVERITY.index)
        because = [finding for finding, action in own if action == worst]
        ends = [_until(finding, findings, policy) for finding in because]
        end = None if None in ends else max(each for each in ends if each is not None)
        tested = policy.test is not None and worst == "drain"
        state, last = _STATES[worst], known.get(name)
        yield PartHealth(
            name,
            state,
            last.since if last is not None and last.state == state else now,
            "; ".join(finding.detail for finding in because),
            None if tested else end,
            end if tested else None,
        )
