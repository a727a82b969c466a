"""What nodes have, and tasks ask for, beside GPUs: by name, in whole numbers.

CPU (in milli-cores) and memory (in bytes) are fields of their own, since quota and guarantees speak of them. All else is only there
or not: network cards, hugepages and disk in bytes, places for pods, ports of the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from solver.model.quantities import Memory

CPU: Final = "cpu"
MEMORY: Final = "memory"

PLACES: Final = "pods"
"""How many pods a node takes, whatever else they ask for: Kubernetes' own name."""

PORT_PREFIX: Final = "hostPort/"
"""A port of a node, as PREFIX PROTOCOL/NUMBER, on all of its addresses; with /ADDRESS on that one."""

VOLUME_PREFIX: Final = "volumes/"
"""Volumes that a driver can mount on one node, by its name."""

WHOLE_PORT: Final = 1_000
"""All of a port. What listens on one address takes all of the port there, and one part of the port: then no task can have the whole
of it, and others can have it on other addresses."""

_SPELLED_OUT_MIN = 2**20
"""Smaller amounts are counts of things."""


class Amounts(dict[str, int]):
    """Amounts by name, sorted. Never changed; where there are none it is NONE."""

    __slots__ = ("_hash",)

    def __init__(self, amounts: Iterable[tuple[str, int]]) -> None:
        super().__init__(amounts)
        self._hash = hash(tuple(self.items()))

    def __hash__(self) -> int:  # type: ignore[override]
        return self._hash

    def _frozen(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("amounts are never changed")

    __setitem__ = __delitem__ = update = setdefault = pop = popitem = clear = _frozen
    __ior__ = _frozen


NONE: Final = Amounts(())


def amounts_of(amounts: Mapping[str, int]) -> Amounts:
    """These amounts, sorted by name; what is 0 is kept: of a port a node may have none left."""
    return Amounts(sorted(amounts.items())) if amounts else NONE


def read_amounts(written: object) -> Amounts:
    """From what YAML and JSON hold: numbers, or quantities of bytes such as 100Gi; raises ValueError."""
    if not isinstance(written, dict):
        raise ValueError(f"expected amounts by name, got {written!r}")  # noqa: TRY004 (as quantities do)
    return amounts_of({str(name): int(Memory.parse(amount)) for name, amount in written.items()})


def amount_in_words(amount: int) -> str:
    """2, or 100Gi."""
    return str(Memory(amount)) if amount >= _SPELLED_OUT_MIN else str(amount)


def in_words(name: str, amount: int) -> str:
    """`2 rdma/hca`, `100Gi ephemeral-storage`, `port 8080 (TCP) on its node`, `1 place for pods`, `1 volume of csi.example.com`."""
    if is_port(name):
        return f"{port_in_words(name)} on its node"
    if name == PLACES:
        return f"{amount} {'place' if amount == 1 else 'places'} for pods"
    if name.startswith(VOLUME_PREFIX):
        return f"{amount} {'volume' if amount == 1 else 'volumes'} of {name.removeprefix(VOLUME_PREFIX)}"
    return f"{amount_in_words(amount)} {name}"


def port_in_words(name: str) -> str:
    """`port 8080 (TCP)`, or `port 8080 (TCP) of 10.0.0.1`."""
    protocol, number, *address = name.removeprefix(PORT_PREFIX).split("/", 2)
    return f"port {number} ({protocol}){f' of {address[0]}' if address else ''}"


def is_port(name: str) -> bool:
    """Whether it is a port, of which a node has one."""
    return name.startswith(PORT_PREFIX)


def unsaid(name: str) -> int:
    """How much a node has of what it says nothing of: all of each port, and nothing of all else."""
    return WHOLE_PORT if is_port(name) else 0


class AmountsLeft(dict[str, int]):
    """What is left of one node, by name: less than 0 where more is taken than it has."""

    def __missing__(self, name: str) -> int:
        return unsaid(name)

    def take(self, amounts: Mapping[str, int], times: int = 1) -> None:
        """So many take this; less than 0: it is given back."""
        for name, amount in amounts.items():
            self[name] = self[name] - amount * times

    def covers(self, amounts: Mapping[str, int]) -> bool:
        """Whether there is so much of each that is asked for."""
        return all(amount <= self[name] for name, amount in amounts.items() if amount)
