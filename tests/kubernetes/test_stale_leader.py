"""A leader that was paused past its lease and goes on: nothing that it writes is accepted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import structlog

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.fence import QUORATE
from hack.kubernetes.shipped import GROUPS
from reconciler.kubernetes.binder.binding import Binder
from reconciler.kubernetes.client.leader import Election, Timing
from reconciler.model.clock import SystemClock
from tests.kubernetes.candidate import Stand, Told
from tests.kubernetes.fencing import as_quorate, led_by
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.standing import standing
from tests.kubernetes.test_binding import a_gang, bindings_sent

pytestmark = REAL

TIMING = Timing(lease_s=6, renew_every_s=0.2, margin_s=1, settle_s=0.2)
PODS, ROUNDS = 100, 10


def test_of_a_thousand_writes_of_a_leader_that_was_paused_none_is_accepted(fenced: Cluster, tmp_path: Path) -> None:
    async def story() -> None:
        await led_by(fenced, None)
        async with session(fenced) as admin, as_quorate(fenced) as api, as_quorate(fenced) as for_lease:
            space = await a_namespace(admin)
            gang = await a_gang(admin, space, "g", PODS)
            kubeconfig = str(fenced.kubeconfig(QUORATE, GROUPS))
            file = tmp_path / "stand.json"
            file.write_bytes(msgspec.json.encode(Stand(kubeconfig, "old", TIMING, gang, ROUNDS)))
            old = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.kubernetes.candidate", "stand", str(file),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert old.stdin
            assert old.stdout
            epoch = int(await old.stdout.readline())
            os.kill(old.pid, signal.SIGSTOP)
            election = Election(for_lease, "new", SystemClock(), structlog.get_logger(), TIMING)
            async with standing(election):
                lead = await election.elected()
                assert lead.epoch == epoch + 1
                os.kill(old.pid, signal.SIGCONT)
                old.stdin.write(b"go\n")
                told = msgspec.json.decode(await old.stdout.readline(), type=Told)
                await old.wait()
                assert told == Told(False, ["stale-leader"] * PODS, 0, PODS * ROUNDS, 0)
                sent = len(bindings_sent(fenced, space))
                assert sent == PODS * ROUNDS, "its own clock had let nothing leave before that"
                (outcome,) = await Binder(api, election.leadership, SystemClock()).bind([gang])
                assert outcome.is_whole

    asyncio.run(story())
