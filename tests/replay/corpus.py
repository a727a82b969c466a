"""Rounds of hundreds of random worlds, recorded once and replayed under the code as it is now: what moves code must not move plans.

    python -m tests.replay.corpus record FILE     # with the code before
    python -m tests.replay.corpus replay FILE     # with the code after; exits with 1 if a plan differs in a byte

FILE has one record a line, in base64: what `quorate replay` reads from a store. So it also says whether the code can still read
what was written before it.
"""

from __future__ import annotations

import base64
import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.progress import track

from hack.rounds.onward import Onward
from hack.rounds.world import World
from reconciler.control.recording import WITHOUT_PROGRAM
from reconciler.control.replay import replay
from reconciler.protocols.rounds import RoundRecord
from solver.milp.highs import optimise
from solver.model.document import decode, encode
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.disturbed.disturbances import Disturbed
from tests.disturbed.drawn_policies import DrawnPolicies
from tests.disturbed.test_rounds import PAUSES
from tests.scenarios.loader import read_scenario
from tests.scenarios.test_scenarios import SCENARIOS

SMALL_WORLDS: Final = range(200)
ROUNDS_OF_SMALL: Final = 6
LARGE_WORLDS: Final = range(12)
ROUNDS_OF_LARGE: Final = 2


def of_scenarios() -> Iterator[RoundRecord]:
    """The round of each scenario, without the program and with it."""
    for path in SCENARIOS:
        scenario = read_scenario(path)
        for with_program in (False, True):
            yield _decided(scenario.snapshot, scenario.policy, path.stem, with_program=with_program)


def of_small_worlds() -> Iterator[RoundRecord]:
    """Rounds that follow each other in clusters of a few nodes to which much happens."""
    for seed in SMALL_WORLDS:
        chance = random.Random(seed * 11 + 5)
        world = Disturbed(seed + 40_000, nodes=chance.choice([1, 2, 3, 4, 6, 8]), jobs=chance.randint(3, 12))
        for number in range(ROUNDS_OF_SMALL):
            snapshot = world.cluster.snapshot(world.policy)
            record = _decided(snapshot, world.policy, f"small {seed}/{number}", with_program=number % 2 == 1)
            yield record
            world.cluster.act(record.plan, partly=chance.choice([False, False, True]), refused=0)
            world.cluster.settle(Duration(chance.choice(PAUSES)))
            world.disturb()


def of_large_worlds() -> Iterator[RoundRecord]:
    """Rounds of hundreds of GPUs under random policies."""
    for seed in LARGE_WORLDS:
        chance = random.Random(seed)
        sizes = chance.choice([256, 512, 1024]), chance.choice([60, 200, 400]), chance.choice([0.6, 0.8, 0.93, 0.99])
        world = World(*sizes, seed)
        onward = Onward(world.workload(chance, "later"), chance, churn=chance.choice([0.02, 0.05, 0.15]))
        snapshot, policy = world.snapshot, DrawnPolicies(chance).varied(world.policy)
        for number in range(ROUNDS_OF_LARGE):
            record = _decided(snapshot, policy, f"large {seed}/{number}", with_program=seed % 2 == 1)
            yield record
            snapshot = onward.after(snapshot, record.plan)


def _decided(snapshot: Snapshot, policy: Policy, name: str, *, with_program: bool) -> RoundRecord:
    plan = solve(snapshot, policy, optimise if with_program else None)
    solution = "" if with_program else WITHOUT_PROGRAM
    return RoundRecord(1, snapshot.time, name, snapshot, policy, plan, {}, solution)


def record_all(file: Path) -> int:
    """Write them; how many."""
    with file.open("wb") as lines:
        count = 0
        for records in (of_scenarios(), of_small_worlds(), of_large_worlds()):
            for record in track(records, description="Recording"):
                lines.write(base64.b64encode(zlib.compress(encode(record))) + b"\n")
                count += 1
    return count


def differences(file: Path) -> Iterator[str]:
    """Each record that comes out otherwise now, and where."""
    for line in track(file.read_bytes().splitlines(), description="Replaying"):
        stored = zlib.decompress(base64.b64decode(line))
        record = decode(stored, RoundRecord)
        if encode(record) != stored:
            yield f"{record.revision}: it is written otherwise now"
        replayed = replay(record, optimise)
        if not replayed.identical:
            yield f"{record.revision}: {replayed.difference}"


def main() -> None:
    command, file = sys.argv[1], Path(sys.argv[2])
    if command == "record":
        print(f"{record_all(file)} rounds are in {file}")
        return
    found = list(differences(file))
    print("\n".join(found) or "all plans are the same, byte for byte")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
