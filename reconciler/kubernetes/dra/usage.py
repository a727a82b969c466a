"""What is allocated in the whole cluster: devices, and how much of counters their devices use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from reconciler.kubernetes.dra.pools import CounterId, Device, DeviceId, Number, Pool
from reconciler.kubernetes.dra.wire import ResourceClaim


class DeviceUsage:
    """Kept up to date by the allocator.

    A device that two claims have, which is how others may have written it, is free once both are gone.
    """

    def __init__(self, pools: Iterable[Pool]) -> None:
        self._consumes = {device.id: device.consumes for pool in pools for device in pool.devices if device.consumes}
        self._taken: Counter[DeviceId] = Counter()
        self._used: dict[CounterId, Number] = {}

    def take(self, devices: Iterable[DeviceId]) -> None:
        """They are in use from now on. One that no driver publishes any more uses no counter."""
        for device in devices:
            self._taken[device] += 1
            if self._taken[device] == 1:
                for counter, number in self._consumes.get(device, ()):
                    self._used[counter] = self._used.get(counter, 0) + number

    def give_back(self, devices: Iterable[DeviceId]) -> None:
        """They are in use no longer, each so often as it was taken."""
        for device in devices:
            self._taken[device] -= 1
            if not self._taken[device]:
                del self._taken[device]
                for counter, number in self._consumes.get(device, ()):
                    self._used[counter] -= number

    def has(self, device: Device) -> bool:
        """Whether it is in use."""
        return device.id in self._taken

    def of(self, counter: CounterId) -> Number:
        """How much of a counter is used."""
        return self._used.get(counter, 0)


def usage_of(pools: Iterable[Pool], claims: Iterable[ResourceClaim]) -> DeviceUsage:
    """What these claims use."""
    usage = DeviceUsage(pools)
    for claim in claims:
        usage.take(devices_of(claim))
    return usage


def devices_of(claim: ResourceClaim) -> tuple[DeviceId, ...]:
    """The devices that a claim has to itself: not those that it looks at as an administrator."""
    if claim.status.allocation is None:
        return ()
    results = claim.status.allocation.devices.results
    return tuple(DeviceId(each.driver, each.pool, each.device) for each in results if not each.admin_access)
