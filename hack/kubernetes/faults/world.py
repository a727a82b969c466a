"""What happens in a cluster in a few seconds, from a seed: gangs come, end and are deleted, nodes vanish, processes die."""

from __future__ import annotations

from random import Random
from typing import Literal, NamedTuple

GPUS_PER_NODE = 4
BUSY_S = 4.0
"""So long faults last, and so long things happen."""


class Gang(NamedTuple):
    """Pods that are worth nothing unless all of them run. `part`: of one GPU, 0: `gpus` whole ones. `urgent`: before others.

    `refills`: its controller makes a pod anew under the same name as soon as it is missing, while the gang never was whole; else,
    and afterwards always, it deletes all and begins anew. `lives_s`: it ends well so long after it was whole; None: never.
    """

    name: str
    size: int
    gpus: int
    part: float
    refills: bool
    lives_s: float | None
    urgent: bool = False


Kind = Literal[
    "arrive", "delete", "node-gone", "node-back", "kill", "hold-up", "go-on", "cut-off", "joined", "deaf", "hears"
]
ENDS: dict[Kind, Kind] = {"hold-up": "go-on", "cut-off": "joined", "deaf": "hears"}
"""A process stands still; reaches nothing and hears nothing; hears nothing of its watches, though all it asks is answered."""
LASTS_S = 1.5, 5.0
"""Some last longer than the lease of a process, and some do not."""


class Happening(NamedTuple):
    """At `at_s` after faults began; `subject` is a gang, a node, or the number of a process."""

    at_s: float
    kind: Kind
    subject: str


class Script(NamedTuple):
    """All that happens in one seed. `deaths`: the process dies that sends the first, second or so Binding of all."""

    nodes: tuple[str, ...]
    gangs: tuple[Gang, ...]
    members: int
    happenings: tuple[Happening, ...]
    deaths: frozenset[int]


def script_of(seed: int) -> Script:
    """More is asked for than there is room for, what is urgent comes first, and processes die and stand still often."""
    chance = Random(f"script of {seed}")
    nodes = tuple(f"s{seed}-n{number}" for number in range(chance.randint(2, 4)))
    gangs = tuple(_gang(chance, number) for number in range(chance.randint(6, 12)))
    members = chance.randint(1, 2)
    happenings: list[Happening] = []
    for gang in gangs:
        at_s = chance.random() * BUSY_S * 0.8
        happenings.append(Happening(at_s, "arrive", gang.name))
        if chance.random() < 0.3:
            happenings.append(Happening(at_s + chance.random() * BUSY_S / 2, "delete", gang.name))
    if chance.random() < 0.5:
        node, at_s = chance.choice(nodes), chance.random() * BUSY_S
        happenings.append(Happening(at_s, "node-gone", node))
        if chance.random() < 0.5:
            happenings.append(Happening(at_s + chance.random(), "node-back", node))
    for _ in range(chance.randint(1, 3)):
        happenings += _mishap(chance, str(chance.randrange(members)))
    deaths = frozenset(chance.sample(range(1, 30), chance.choice((0, 1, 3))))
    return Script(nodes, gangs, members, tuple(sorted(happenings)), deaths)


def _gang(chance: Random, number: int) -> Gang:
    part = chance.choice((0.0, 0.0, 0.0, 0.5, 0.25))
    return Gang(
        f"g{number}",
        chance.choice((1, 2, 2, 3, 4, 6)),
        0 if part else chance.choice((1, 1, 2, 4)),
        part,
        chance.random() < 0.5,
        chance.random() * BUSY_S / 2 if chance.random() < 0.5 else None,
        chance.random() < 0.4,
    )


def _mishap(chance: Random, member: str) -> tuple[Happening, ...]:
    at_s, lasts_s = chance.random() * BUSY_S, chance.uniform(*LASTS_S)
    kinds: tuple[Kind, ...] = ("kill", "kill", "hold-up", "cut-off", "deaf")
    kind = chance.choice(kinds)
    begins = Happening(at_s, kind, member)
    return (begins, Happening(at_s + lasts_s, ENDS[kind], member)) if kind in ENDS else (begins,)
