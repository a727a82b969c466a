"""What it costs a round that users share their queues fairly: the same cluster and users, decided without it and with it.

    python -m hack.bench_user_shares --gpus 100000 --pending 5000 --users 5000 --rounds 3

Greedy rounds in this process, one after the other, in seconds of the process (`process_time`), without what is kept between rounds.
"""

from __future__ import annotations

import argparse
import random
from statistics import median
from time import process_time

import msgspec

from hack.rounds.world import World
from solver.checker.check import violations
from solver.model.snapshot import Snapshot, snapshot_of
from solver.policy.policy import Policy
from solver.policy.user_shares import UserShares
from solver.round.solve import decide


def shared(policy: Policy) -> Policy:
    """The same policy, whose users share every queue; every tenth weighs twice as much as others."""
    weights = {f"user-{number}": 2 for number in range(0, 1000, 10)}
    queues = (
        msgspec.structs.replace(queue, users=UserShares(True, weights)) if queue.parent is None else queue
        for queue in policy.queues
    )
    return msgspec.structs.replace(policy, queues=tuple(queues))


def with_users(snapshot: Snapshot, users: int) -> Snapshot:
    """The same snapshot, each job one of a random user's."""
    chance = random.Random(1)
    jobs = [msgspec.structs.replace(job, user=f"user-{chance.randrange(users)}") for job in snapshot.jobs]
    return snapshot_of(snapshot.time, snapshot.nodes, jobs, snapshot.in_flight, snapshot.node_sets)


def main() -> None:
    """Measure, and print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("gpus", 4096), ("pending", 1000), ("users", 1000), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    world = World(asked.gpus, asked.pending)
    snapshot, policy = with_users(world.snapshot, asked.users), world.policy
    for name, known in (("without", policy), ("users.fairShare", shared(policy))):
        deeds, wholes, checks, steps = list[float](), list[float](), list[float](), 0
        for _ in range(asked.rounds):
            began = process_time()
            found = decide(snapshot, known, None)
            found.deed()
            deeds.append(process_time() - began)
            plan = found.plan()
            wholes.append(process_time() - began)
            began = process_time()
            assert violations(snapshot, known, plan) == ()
            checks.append(process_time() - began)
            steps = len(plan.steps)
        figures = f"deed {median(deeds):.2f} s, whole {median(wholes):.2f} s, check {median(checks):.2f} s"
        print(f"{name:16} {figures}; {steps} steps", flush=True)


if __name__ == "__main__":
    main()
