"""Worlds in which a certain bug shows soon, by the name of the bug; a sound scheduler comes through all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hack.kubernetes.faults.profile import HONEST, Profile
from hack.kubernetes.faults.world import GPUS_PER_NODE, Gang, Happening, Script

SLOW = Profile("bound late, and seen later", blind_binding=90)
LIMBO = Profile("bound late", late_binding=90)


class Trial(NamedTuple):
    """`kind`: of the violation that is to be seen. `fenced`: with the fence, which hides what leaders do wrong."""

    script: Callable[[int], Script]
    profile: Profile
    kind: str
    fenced: bool = True


def contested(seed: int) -> Script:
    """One node, and by turns what is usual and what goes before it; each wants all of the node, for a moment."""
    gangs, happenings = [], []
    for turn in range(6):
        for urgent, after_s in ((False, 0.0), (True, 0.15)):
            gang = Gang(f"g{2 * turn + urgent}", 1, GPUS_PER_NODE, 0.0, refills=False, lives_s=0.8, urgent=urgent)
            gangs.append(gang)
            happenings.append(Happening(1.2 * turn + after_s, "arrive", gang.name))
    return Script((f"s{seed}-n0",), tuple(gangs), 1, tuple(sorted(happenings)), frozenset())


def crowded(seed: int) -> Script:
    """Four nodes, and every moment another gang that wants one of them, by turns usual and urgent."""
    gangs = tuple(
        Gang(f"g{number}", 1, GPUS_PER_NODE, 0.0, refills=False, lives_s=0.8, urgent=number % 2 == 1)
        for number in range(24)
    )
    happenings = tuple(Happening(0.25 * number, "arrive", gang.name) for number, gang in enumerate(gangs))
    return Script(tuple(f"s{seed}-n{number}" for number in range(4)), gangs, 1, happenings, frozenset())


def handed_over(seed: int) -> Script:
    """One node, and gangs in a line for it; who has it is deleted, and takes a while to leave."""
    gangs = tuple(Gang(f"g{number}", 1, GPUS_PER_NODE, 0.0, refills=False, lives_s=None) for number in range(6))
    arrive = [Happening(0.2 * number, "arrive", gang.name) for number, gang in enumerate(gangs)]
    delete = [Happening(1.5 + number, "delete", gang.name) for number, gang in enumerate(gangs)]
    return Script((f"s{seed}-n0",), gangs, 1, tuple(sorted(arrive + delete)), frozenset())


def dying_in_the_middle(seed: int) -> Script:
    """The process dies at the second Binding of a gang, again and again."""
    gangs = tuple(Gang(f"g{number}", 4, 1, 0.0, refills=False, lives_s=None) for number in range(3))
    happenings = tuple(Happening(0.1 * number, "arrive", gang.name) for number, gang in enumerate(gangs))
    nodes = tuple(f"s{seed}-n{number}" for number in range(3))
    return Script(nodes, gangs, 1, happenings, frozenset((2, 5)))


def held_up_in_turn(seed: int) -> Script:
    """Each of two processes stands still for longer than the lease, while there is always something to bind."""
    gangs = tuple(Gang(f"g{number}", 1, 1, 0.0, refills=False, lives_s=0.2) for number in range(36))
    happenings = [Happening(0.3 * number, "arrive", gang.name) for number, gang in enumerate(gangs)]
    for member, at_s in (("0", 0.5), ("1", 5.5)):
        happenings += Happening(at_s, "hold-up", member), Happening(at_s + 4.5, "go-on", member)
    return Script(tuple(f"s{seed}-n{number}" for number in range(2)), gangs, 2, tuple(sorted(happenings)), frozenset())


TRIALS: dict[str, Trial] = {
    "rounds-do-not-wait-until-they-see-what-was-done": Trial(crowded, SLOW, "double-bound"),
    "bindings-name-neither-uid-nor-version": Trial(contested, HONEST, "unguarded"),
    "bindings-without-an-answer-are-forgotten": Trial(contested, LIMBO, "double-bound"),
    "nobody-asks-who-leads": Trial(held_up_in_turn, HONEST, "stale-accepted", fenced=False),
    "gangs-that-were-begun-are-left-as-they-are": Trial(dying_in_the_middle, HONEST, "partial"),
    "pods-that-were-asked-to-leave-count-as-gone": Trial(handed_over, HONEST, "double-bound"),
}
