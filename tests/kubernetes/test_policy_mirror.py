"""The copy of the policy on a real API server, under the rights that are shipped: written once, continued after every crash."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import ACCOUNT, NAMESPACE
from reconciler.documents.files import Files
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import RefusedError
from reconciler.kubernetes.status.policy_mirror import PolicyMirror
from reconciler.kubernetes.status.policy_parts import INDEX, MIRROR, Copy, PolicyRevision, copy_of
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import NotLeaderError
from solver.model.quantities import Instant
from tests.kubernetes.fencing import as_quorate
from tests.kubernetes.sessions import CONFIG_MAPS, REAL, audited, session

pytestmark = REAL


def copy(number: int) -> Copy:
    """Of a revision with three parts, two of which say the same as in every other revision."""
    files = {f"policies/{name}.yaml": text * 800_000 for name, text in (("a", b"a"), ("b", b"b"))}
    return copy_of(
        PolicyRevision(
            f"{number:040x}", None, Files({**files, "policies/c.yaml": bytes([ord("a") + number % 26]) * 800_000})
        )
    )


LEADER = Leadership("one", Epoch(3), 0.0)


class Lease:
    """It is asked for its leadership before each write, and leads for so many of them."""

    def __init__(self, writes: int = 1_000) -> None:
        self._left = writes

    def leadership(self) -> Leadership:
        if not self._left:
            raise NotLeaderError("another", Instant(0))
        self._left -= 1
        return LEADER


async def there(api: Api) -> dict[str, dict[str, Any]]:
    listed = await api.get(CONFIG_MAPS.path(NAMESPACE), dict[str, Any], {"labelSelector": MIRROR})
    return {each["metadata"]["name"]: each for each in listed["items"]}


def is_copied(found: dict[str, dict[str, Any]], copy: Copy) -> bool:
    parts = {part["metadata"]["name"]: part["data"] for part in copy.parts}
    shown = {name: each["data"] for name, each in found.items()}
    return shown == {**parts, INDEX: copy.listing["data"]}


def asked(cluster: Cluster) -> int:
    return sum(event["user"]["username"] == ACCOUNT for event in audited(cluster, CONFIG_MAPS.path(NAMESPACE)))


def test_a_revision_is_written_once_and_takes_the_place_of_the_last(shipped: Cluster) -> None:
    async def story() -> None:
        async with as_quorate(shipped) as quorate, session(shipped) as admin:
            mirror = PolicyMirror(quorate, NAMESPACE, Lease())
            await mirror.show(copy(1))
            found = await there(admin)
            assert is_copied(found, copy(1))
            assert all(each["metadata"]["annotations"].items() >= LEADER.stamp.items() for each in found.values())
            before = asked(shipped)
            assert await mirror.show(copy(1)) == 0
            assert asked(shipped) == before + 1  # it has looked
            assert await mirror.show(copy(2)) == 3 + 1 + 3
            assert is_copied(await there(admin), copy(2))

    asyncio.run(story())


def test_who_leads_next_goes_on_after_any_write(shipped: Cluster) -> None:
    async def story() -> None:
        async with as_quorate(shipped) as quorate, session(shipped) as admin:
            await PolicyMirror(quorate, NAMESPACE, Lease()).show(copy(10))
            for writes in range(3 + 1 + 3):
                before, after = copy(10 + writes), copy(11 + writes)
                with pytest.raises(NotLeaderError):
                    await PolicyMirror(quorate, NAMESPACE, Lease(writes)).show(after)
                found = await there(admin)
                pointed = before if writes < 4 else after
                assert found[INDEX]["data"] == pointed.listing["data"]
                assert {part["metadata"]["name"] for part in pointed.parts} <= found.keys()
                left = await PolicyMirror(quorate, NAMESPACE, Lease()).show(after)
                assert left == 3 + 1 + 3 - writes
                assert is_copied(await there(admin), after)

    asyncio.run(story())


def test_what_was_deleted_or_is_not_of_this_revision_is_put_right_by_the_next(shipped: Cluster) -> None:
    async def story() -> None:
        async with as_quorate(shipped) as quorate, session(shipped) as admin:
            await PolicyMirror(quorate, NAMESPACE, Lease()).show(copy(30))
            await admin.delete(CONFIG_MAPS.path(NAMESPACE, copy(30).parts[1]["metadata"]["name"]))
            await admin.delete(CONFIG_MAPS.path(NAMESPACE, INDEX))
            assert await PolicyMirror(quorate, NAMESPACE, Lease()).show(copy(30)) == 2
            assert is_copied(await there(admin), copy(30))

    asyncio.run(story())


def test_not_even_quorate_changes_a_part(shipped: Cluster) -> None:
    async def story() -> None:
        async with as_quorate(shipped) as quorate:
            await PolicyMirror(quorate, NAMESPACE, Lease()).show(copy(40))
            path = CONFIG_MAPS.path(NAMESPACE, copy(40).parts[0]["metadata"]["name"])
            with pytest.raises(RefusedError, match="immutable"):
                await quorate.patch(path, {"data": {"policies__a.yaml": "other"}})

    asyncio.run(story())
