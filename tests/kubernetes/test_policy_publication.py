"""When the policy is shown in its cluster: once for each revision and each time of leading, and nothing goes down with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.control.control import NoPolicyError, PolicyInForce
from reconciler.documents.files import Files
from reconciler.gitops.source.tree import Revision
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import UnreachableError
from reconciler.kubernetes.control.policy_publication import PolicyPublication
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import NotLeaderError
from solver.model.quantities import Instant
from solver.policy.policy import Policy


class Git:
    """The policies that are in force, one after the other."""

    def __init__(self) -> None:
        self.revision = ""

    def current(self) -> PolicyInForce:
        if not self.revision:
            raise NoPolicyError("none yet")
        return PolicyInForce(self.revision, cast("Policy", None), ())

    def read(self, revision: str) -> Revision:
        return Revision(revision * 40, Files({"policies/a.yaml": revision.encode()}))


class Lease:
    """Ours in epochs above 0."""

    def __init__(self) -> None:
        self.epoch = 0

    def leadership(self) -> Leadership:
        if not self.epoch:
            raise NotLeaderError("another", Instant(0))
        return Leadership("one", Epoch(self.epoch), 0.0)


class Server:
    """An API server with nothing in it, which counts how often it was looked at and what was written."""

    def __init__(self) -> None:
        self.looks = 0
        self.revisions: list[str] = []
        self.silent = False

    async def get(self, _: str, kind: type[Any], __: object) -> Any:
        self.looks += 1
        if self.silent:
            raise UnreachableError("GET: no answer")
        return kind(())

    async def create(self, _: str, body: Any) -> None:
        self.revisions += [body["data"]["revision"]] if body["metadata"]["name"] == "quorate-policy" else []


Story = list[Callable[[Git, Lease, Server], None]]


def played(story: Story) -> Server:
    """What came of it when these things happen, each before the next look."""
    git, lease, server, left = Git(), Lease(), Server(), iter(story)

    async def sleep(_: float) -> None:
        happens = next(left, None)
        if happens is None:
            raise asyncio.CancelledError
        happens(git, lease, server)

    shown = PolicyPublication(git, git.read, None, "quorate-system", structlog.get_logger(), sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(shown.run(cast("Api", server), lease))
    return server


def in_force(revision: str) -> Callable[[Git, Lease, Server], None]:
    return lambda git, lease, server: setattr(git, "revision", revision)


def leads(epoch: int) -> Callable[[Git, Lease, Server], None]:
    return lambda git, lease, server: setattr(lease, "epoch", epoch)


def silent(so: bool) -> Callable[[Git, Lease, Server], None]:
    return lambda git, lease, server: setattr(server, "silent", so)


def nothing(*_: object) -> None:
    pass


def test_each_revision_is_shown_once() -> None:
    server = played([leads(1), nothing, in_force("a"), nothing, nothing, in_force("b"), nothing])
    assert server.revisions == ["a" * 40, "b" * 40]
    assert server.looks == 2


def test_who_does_not_lead_shows_nothing_and_who_leads_again_looks_again() -> None:
    server = played([in_force("a"), nothing, leads(1), leads(0), nothing, leads(3), nothing])
    assert server.looks == 2


def test_what_fails_is_told_once_and_tried_again() -> None:
    with capture_logs() as told:
        server = played([leads(1), silent(True), in_force("a"), nothing, nothing, silent(False), nothing])
    assert server.revisions == ["a" * 40]
    assert [(each["event"], each["message"]) for each in told] == [("policy-not-shown", "GET: no answer")]
