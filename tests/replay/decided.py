"""Decides a seeded round with the program and without, from input in a drawn order: `python -m tests.replay.decided SEED`."""

from __future__ import annotations

import json
import random
import sys

from hack.rounds.cases import with_limit
from hack.rounds.world import World
from reconciler.documents.snapshot import read_snapshot
from solver.program.highs import optimise
from solver.rules.policy import Policy, policy_of
from solver.solve import solve
from solver.world.document import encode
from solver.world.snapshot import Snapshot

WORLD = World(512, pending=80, full=0.9)
LIMIT_S = 600


def shuffled(snapshot: Snapshot, policy: Policy, chance: random.Random) -> tuple[Snapshot, Policy]:
    """The same, read from documents whose parts stand in another order."""
    document = json.loads(encode(snapshot))
    queues, classes = list(policy.queues), list(policy.priority_classes)
    for part in (document["nodes"], document["jobs"], queues, classes):
        chance.shuffle(part)
    again = read_snapshot(json.dumps(document).encode(), "shuffled")
    return again, policy_of(tuple(queues), tuple(classes), policy.scheduling)


def main() -> None:
    policy = with_limit(WORLD.policy, LIMIT_S)
    snapshot, policy = shuffled(WORLD.snapshot, policy, random.Random(sys.argv[1]))
    for optimiser in (optimise, None):
        sys.stdout.buffer.write(encode(solve(snapshot, policy, optimiser)) + b"\n")


if __name__ == "__main__":
    main()
