"""What a pod asks for in all, as the scheduler of Kubernetes counts it.

Beside what containers ask for these are its place among the pods of its node, and the ports of the node that it listens on.

Containers run together; init containers one after the other, before them; an init container with `restartPolicy: Always` is a
sidecar, and runs from its turn on (KEP-753). What the pod says as a whole takes the place of the sum, for CPU, memory and huge
pages (KEP-2837). The overhead of its runtime class comes on top (KEP-688). KEPs: github.com/kubernetes/enhancements, sig-node.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.amounts import amount
from reconciler.kubernetes.objects.wire import Amounts, KubeContainer, PodSpec, Resources, Wire, read
from solver.model.amounts import PLACES, PORT_PREFIX, WHOLE_PORT

Requests = dict[str, Fraction]

_MOST: Final = {"cpu": 10**6, "memory": 10**18, names.GPU: 10**4, PLACES: 10**6}
_MOST_OF_OTHERS: Final = 10**15

_ALL_ADDRESSES: Final = frozenset({"", "0.0.0.0"})  # noqa: S104 (as pods write it)


def most_of(name: str) -> int:
    """Of one pod or node, as of documents in Git: no machine has so much, and rounds add such numbers up in 64 bits."""
    return _MOST.get(name, _MOST_OF_OTHERS)


class _Asking(Wire, frozen=True):
    """What of a pod says how much it needs."""

    containers: tuple[KubeContainer, ...]
    init_containers: tuple[KubeContainer, ...]
    overhead: Amounts
    resources: Resources | None


def requests_of(spec: PodSpec) -> Requests:
    """Each resource with how much of it the pod needs on its node; raises ValueError for what is no quantity. Not to be changed."""
    return requests_in(request_key(spec))


def request_key(spec: PodSpec) -> bytes:
    """What of a pod says how much it needs: what follows from it is worth remembering, since most pods ask for what others ask."""
    return msgspec.json.encode(_Asking(spec.containers, spec.init_containers, spec.overhead, spec.resources))


@lru_cache(maxsize=8192)
def requests_in(written: bytes) -> Requests:
    """As `requests_of`, from what `asking` gave. Exact numbers are slow to add up."""
    spec = read(written, _Asking)
    sidecars: Requests = {}
    most: Requests = {}
    for container in spec.init_containers:
        asked = _asked(container.resources)
        if container.restart_policy == "Always":
            sidecars = plus(sidecars, asked)
            most = _larger(most, sidecars)
        else:
            most = _larger(most, plus(sidecars, asked))
    running = sidecars
    for container in spec.containers:
        running = plus(running, _asked(container.resources))
    total = _larger(most, running)
    if spec.resources is not None:
        total |= _asked(spec.resources)
    asked = {name: number for name, number in plus(total, _read(spec.overhead)).items() if number > 0}
    return {**asked, **PLACE, **_ports(spec)}


PLACE: Final[Requests] = {PLACES: Fraction(1)}
"""What any pod takes: its place."""


def _ports(spec: _Asking) -> Requests:
    """The ports of the node that it listens on, counted as amounts (WHOLE_PORT). What ended before it runs listens no more."""
    sidecars = (container for container in spec.init_containers if container.restart_policy == "Always")
    listening = {
        (port.protocol, port.host_port, "" if port.host_ip in _ALL_ADDRESSES else port.host_ip)
        for container in (*sidecars, *spec.containers)
        for port in container.ports
        if port.host_port
    }
    found: Requests = {}
    for protocol, number, address in sorted(listening):
        name = f"{PORT_PREFIX}{protocol}/{number}"
        if address:
            found[f"{name}/{address}"] = Fraction(WHOLE_PORT)
        found[name] = min(Fraction(WHOLE_PORT), found.get(name, Fraction(0)) + (1 if address else WHOLE_PORT))
    return found


def plus(one: Requests, other: Requests) -> Requests:
    """The sum; not to be changed, since it may be one of both."""
    if not one or not other:
        return one or other
    return {name: one.get(name, Fraction(0)) + other.get(name, Fraction(0)) for name in (*one, *other)}


def _larger(one: Requests, other: Requests) -> Requests:
    return {name: max(one.get(name, Fraction(0)), other.get(name, Fraction(0))) for name in (*one, *other)}


def _asked(resources: Resources) -> Requests:
    # The API server writes a limit that has no request as a request too; files in tests and dumps may not have been there.
    return _read({**resources.limits, **resources.requests})


def _read(written: Amounts) -> Requests:
    return {name: amount(value) for name, value in written.items()}
