"""What a thief of Quorate's token can do, and a tenant of one namespace, on a real API server with what is shipped."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hack.kubernetes.attack import attacks, attempts
from hack.kubernetes.cluster import running
from hack.kubernetes.components import found, place
from hack.kubernetes.tenant_attack import tenants_attempts
from tests.kubernetes.sessions import REAL

pytestmark = REAL


def test_a_thief_of_the_token_does_what_quorate_does_and_a_tenant_uses_its_own_queues_and_nothing_else(
    tmp_path: Path,
) -> None:
    # On a server of its own, without an audit log: what is asked here is no right that Quorate needs.
    with running(found(place()), tmp_path, audited=False) as cluster:
        answers = asyncio.run(attacks(cluster, tmp_path))
    assert len(answers) == len(attempts()) + len(tenants_attempts())
    wrong = [f"{answer.attempt.what}: {answer.refusal or 'accepted'}" for answer in answers if not answer.is_right]
    assert wrong == []
