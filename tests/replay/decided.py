"""Decides a round in a process of its own, from input in a drawn order: `python -m tests.replay.decided GPUS PENDING SEED`.

The plan with the program is its first line, the one without its second.
"""

from __future__ import annotations

import json
import random
import sys

from hack.rounds.cases import with_limit
from hack.rounds.world import World
from reconciler.documents.snapshot import read_snapshot
from solver.milp.highs import optimise
from solver.model.document import encode
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy, policy_of
from solver.round.solve import solve

LIMIT_S = 600


def world(gpus: int, pending: int) -> World:
    """What is decided."""
    return World(gpus, pending, full=0.9)


def shuffled(snapshot: Snapshot, policy: Policy, chance: random.Random) -> tuple[Snapshot, Policy]:
    """The same, read from documents whose parts stand in another order."""
    document = json.loads(encode(snapshot))
    queues, classes, geometries = list(policy.queues), list(policy.priority_classes), list(policy.mig)
    for part in (document["nodes"], document["jobs"], queues, classes, geometries):
        chance.shuffle(part)
    again = read_snapshot(json.dumps(document).encode(), "shuffled")
    return again, policy_of(tuple(queues), tuple(classes), policy.scheduling, policy.sharing, tuple(geometries))


def main() -> None:
    gpus, pending, seed = map(int, sys.argv[1:])
    this = world(gpus, pending)
    snapshot, policy = shuffled(this.snapshot, with_limit(this.policy, LIMIT_S), random.Random(seed))
    for optimiser in (optimise, None):
        sys.stdout.buffer.write(encode(solve(snapshot, policy, optimiser)) + b"\n")


if __name__ == "__main__":
    main()
