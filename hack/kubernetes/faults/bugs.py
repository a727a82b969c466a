"""Bugs seeded on purpose: a harness that finds nothing in a broken scheduler would prove nothing about a sound one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from reconciler.kubernetes.binder import binding
from reconciler.kubernetes.binder.journal import PodBinding
from reconciler.kubernetes.binder.start_recovery import RecoveryOutcome, StartRecovery
from reconciler.kubernetes.client import leader
from reconciler.kubernetes.client.informer import Key
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.control.actuator import KubernetesActuator
from reconciler.kubernetes.objects.wire import Pod
from reconciler.protocols.ledger import NotLeaderError

Patches = Iterable[Any]


def rounds_do_not_wait_until_they_see_what_was_done() -> Patches:
    """What was bound a moment ago looks free."""

    async def at_once(_: KubernetesActuator) -> None:
        return

    yield mock.patch.object(KubernetesActuator, "caught_up", at_once)


def bindings_name_neither_uid_nor_version() -> Patches:
    """A pod that was made anew, or a binding that is long void, is bound all the same."""
    sound = binding.binding_of

    def unguarded(pod: PodBinding, annotations: Mapping[str, str]) -> dict[str, Any]:
        body = sound(pod, annotations)
        body["metadata"] = {key: body["metadata"][key] for key in ("name", "annotations", "labels")}
        return body

    yield mock.patch.object(binding, "binding_of", unguarded)


def bindings_without_an_answer_are_forgotten() -> Patches:
    """They may arrive when somebody else has the devices."""

    async def forgotten(hands: KubernetesActuator, key: Key, _: str) -> None:
        del hands._unknown[key]

    yield mock.patch.object(KubernetesActuator, "_voided", forgotten)


def nobody_asks_who_leads() -> Patches:
    """Whoever led once goes on writing."""
    sound = leader.Election.leadership

    def once_is_for_ever(election: leader.Election) -> Leadership:
        try:
            election.once = sound(election)  # type: ignore[attr-defined]
        except NotLeaderError:
            if not hasattr(election, "once"):
                raise
        return election.once  # type: ignore[attr-defined, no-any-return]

    yield mock.patch.object(leader.Election, "leadership", once_is_for_ever)


def gangs_that_were_begun_are_left_as_they_are() -> Patches:
    """Nobody reads the journal."""

    async def nothing(*_: Any) -> RecoveryOutcome:
        return RecoveryOutcome((), (), ())

    yield mock.patch.object(StartRecovery, "finish", nothing)


def pods_that_were_asked_to_leave_count_as_gone() -> Patches:
    """They hold their devices until their kubelet has ended them."""

    def is_over(pod: Pod) -> bool:
        return pod.status.phase in ("Succeeded", "Failed") or pod.metadata.deletion_timestamp is not None

    yield mock.patch.object(Pod, "is_over", property(is_over))


BUGS: dict[str, Callable[[], Patches]] = {
    bug.__name__.replace("_", "-"): bug
    for bug in (
        rounds_do_not_wait_until_they_see_what_was_done,
        bindings_name_neither_uid_nor_version,
        bindings_without_an_answer_are_forgotten,
        nobody_asks_who_leads,
        gangs_that_were_begun_are_left_as_they_are,
        pods_that_were_asked_to_leave_count_as_gone,
    )
}


@contextmanager
def seeded(bug: str) -> Iterator[None]:
    """The control plane has this bug while the context lasts; "": none. Raises KeyError."""
    with ExitStack() as patched:
        for patch in BUGS[bug]() if bug else ():
            patched.enter_context(patch)
        yield
