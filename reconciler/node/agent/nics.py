"""Network ports of this machine, as Linux shows them under /sys/class: Ethernet in `net`, InfiniBand and RoCE in `infiniband`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from reconciler.model.facts import NicFacts

SYS: Final = Path("/sys/class")
_RATE = re.compile(r"([0-9.]+) Gb/sec")


def read_nics(sys: Path = SYS) -> tuple[NicFacts, ...]:
    """Every port with hardware behind it, sorted by name; bridges, tunnels and loopback have none.

    Sources: the kernel's Documentation/ABI/testing/sysfs-class-net (`operstate`, `speed` in Mbit/s, unreadable or -1 while the
    link is down) and sysfs-class-infiniband (`state`, such as `4: ACTIVE`; `rate`, such as `400 Gb/sec (4X NDR)`).
    """
    return tuple(sorted((*_ethernet(sys / "net"), *_infiniband(sys / "infiniband")), key=lambda nic: nic.name))


def _ethernet(net: Path) -> Iterator[NicFacts]:
    for port in net.glob("*"):
        if (port / "device").exists():
            said = _read(port / "speed")
            speed = int(said) if said.isdecimal() else None
            yield NicFacts(port.name, _read(port / "operstate") == "up", speed)


def _infiniband(adapters: Path) -> Iterator[NicFacts]:
    for port in adapters.glob("*/ports/*"):
        rate = _RATE.match(_read(port / "rate"))
        up = _read(port / "state").endswith("ACTIVE")
        name = f"{port.parent.parent.name}/{port.name}"
        yield NicFacts(name, up, int(float(rate[1]) * 1_000) if rate and up else None)


def _read(path: Path) -> str:
    """What a file of /sys says; "" where it is not there or, as for the speed of a port that is down, answers with an error."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
