"""What users are told of nodes that their jobs wait for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.kubernetes.provisioning.decisions import HELD
from reconciler.kubernetes.provisioning.requests import RequestStanding
from solver.model.workload import JobName
from solver.plan.reason import count
from solver.policy.node_requests import Provisioning
from solver.policy.reservation import DeclaredReservation


def request_words(
    known: Iterable[RequestStanding], held: Iterable[DeclaredReservation], rules: Provisioning
) -> dict[JobName, str]:
    """A sentence about the request of each job that has one."""
    kept = {reservation.job: reservation for reservation in held if reservation.name.startswith(HELD)}
    return {one.request.job: _sentence(one, kept.get(one.request.job), rules) for one in known}


def _sentence(one: RequestStanding, kept: DeclaredReservation | None, rules: Provisioning) -> str:
    told = f" ({one.why})" if one.why else ""
    if one.stage == "over":
        last = f"ProvisioningRequest {one.name} gave no nodes: {one.why}, at {one.at}"
        return f"{last}; nodes are asked for again from {one.again_at(rules)} on, for the {_nth(one.request.tries + 1)} time"
    stage = {"asked": "is not accepted yet", "accepted": "is accepted", "provisioned": "is provisioned"}[one.stage]
    nodes = kept.nodes if kept and kept.nodes else ()
    are = "is" if len(nodes) == 1 else "are"
    there = f"; {count(len(nodes), 'node')} that came {are} kept for it until {one.until}" if nodes else ""
    return f"nodes are asked for by ProvisioningRequest {one.name}, which {stage} since {one.at}{told}{there}"


def waiting_words(bounded: Iterable[tuple[JobName, str]]) -> Mapping[JobName, str]:
    """A sentence about each job whose nodes are not asked for."""
    return {job: f"nodes are not asked for yet: {why}" for job, why in bounded}


def _nth(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
