"""`kubectl quorate why` and `gang`: what a pod, and the gang it belongs to, say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from reconciler.cli.kubectl.objects import SeenEvent, SeenPod
from reconciler.cli.kubectl.reader import Reader
from reconciler.cli.output import CommandFailedError
from reconciler.cli.times import local
from reconciler.kubernetes.client.refusals import NotAllowedError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.gang_index import GangIndex
from solver.model.document import API_VERSION, Document
from solver.model.quantities import Instant

GANG_HEADINGS: Final = ("POD", "ROLE", "PHASE", "NODE", "DEVICES", "WHY")
EVENTS_MAX: Final = 10
SEPARATOR: Final = "; "
"""Between what a condition's message lists."""


class ToldEvent(Document, frozen=True, omit_defaults=False):
    """An Event of a pod. `count`: how often it came, the last time at `at`."""

    at: Instant | None
    reason: str
    note: str
    type: str
    count: int = 1


class PodWhy(Document, frozen=True, omit_defaults=False):
    """A pod, where it stands and why. `reason` and `message` are those of its condition PodScheduled; empty: nothing is told yet.

    `events` null: the user may not read them.
    """

    namespace: str
    name: str
    phase: str
    scheduler: str
    node: str
    devices: tuple[str, ...]
    reason: str
    message: str
    events: tuple[ToldEvent, ...] | None
    api_version: Literal["quorate.dev/v1"] = API_VERSION


class GangPod(Document, frozen=True, omit_defaults=False):
    """A pod of a gang."""

    name: str
    role: str
    phase: str
    node: str
    devices: tuple[str, ...]
    reason: str
    message: str


class SeenGang(Document, frozen=True, omit_defaults=False):
    """A gang as its pods say it. `name` is that of its job."""

    name: str
    pods: tuple[GangPod, ...]
    api_version: Literal["quorate.dev/v1"] = API_VERSION

    @property
    def on_nodes(self) -> int:
        """How many of its pods have a node."""
        return sum(bool(pod.node) for pod in self.pods)


async def why_of(reader: Reader, name: str) -> PodWhy:
    """What there is to be said of a pod."""
    pod = await reader.pod(name)
    try:
        events: tuple[ToldEvent, ...] | None = tuple(_told(event) for event in await reader.events(pod))
    except NotAllowedError:
        events = None
    reason, message = _said(pod)
    return PodWhy(
        namespace=reader.namespace,
        name=name,
        phase=pod.status.phase,
        scheduler=pod.spec.scheduler_name,
        node=pod.spec.node_name,
        devices=_devices(pod),
        reason=reason,
        message=message,
        events=events,
    )


def _told(event: SeenEvent) -> ToldEvent:
    at = Instant.parse(event.last) if event.last else None
    return ToldEvent(at, event.reason, event.note, event.type, event.series.count if event.series else 1)


def _said(pod: SeenPod) -> tuple[str, str]:
    """Nothing of a pod that has a node: what it said before is over."""
    said = pod.scheduling
    return (said.reason, said.message) if said and said.status == "False" and not pod.spec.node_name else ("", "")


def _devices(pod: SeenPod) -> tuple[str, ...]:
    return tuple(one for one in pod.metadata.annotations.get(names.DEVICES, "").split(",") if one)


def why_lines(found: PodWhy) -> Iterator[str]:
    """What to print of a pod."""
    yield f"{found.name} in namespace {found.namespace}: {_standing(found)}"
    if found.message:
        yield from (f"  - {part}" for part in found.message.split(SEPARATOR))
    if found.events is None:
        yield "Its events may not be read."
    elif found.events:
        yield "Events, the newest last:"
        yield from (f"  {_event_line(event)}" for event in found.events[-EVENTS_MAX:])


def _standing(found: PodWhy) -> str:
    if found.scheduler != names.SCHEDULER:
        return f"it is not Quorate's; its schedulerName is {found.scheduler}"
    if found.phase in ("Succeeded", "Failed"):
        return f"it has ended: {found.phase}"
    if found.node:
        what = f" with {', '.join(found.devices)}" if found.devices else ""
        return f"it is on {found.node}{what}: {found.phase}"
    if found.reason:
        return f"it waits: {found.reason}"
    return "no round has said anything of it yet"


def _event_line(event: ToldEvent) -> str:
    at = local(event.at) if event.at else "some time ago"
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"{at}  {event.reason}: {event.note}{times}"


async def gang_of(reader: Reader, name: str) -> SeenGang:
    """The gang of a pod, as far as the pods of its namespace say it: PodGroups and controllers are not read."""
    pod = await reader.pod(name)
    seen = {one.metadata.name: one for one in await reader.pods()}
    gathering = GangIndex()
    for one in seen.values():
        gathering.pod(None, one)
    gathering.renewed()
    for gang in gathering.gangs.values():
        members = [(one.role, seen[one.task.pod.metadata.name]) for one in gang.pods]
        if any(member.metadata.uid == pod.metadata.uid for _, member in members):
            return SeenGang(gang.key.job, tuple(_member(role, member) for role, member in members))
    reason = "it is not Quorate's" if pod.spec.scheduler_name != names.SCHEDULER else "it has ended, or is going"
    raise CommandFailedError(f"pod {name} is in no gang: {reason}", fix=f"See `kubectl quorate why {name}`.")


def _member(role: str, pod: SeenPod) -> GangPod:
    reason, message = _said(pod)
    return GangPod(pod.metadata.name, role, pod.status.phase, pod.spec.node_name, _devices(pod), reason, message)


def gang_rows(found: SeenGang) -> Iterator[list[str]]:
    """A row for each pod."""
    for pod in found.pods:
        yield [pod.name, pod.role, pod.phase, pod.node, ", ".join(pod.devices), pod.reason]
