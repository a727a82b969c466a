"""Ports of servers that tests start are nobody else's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hack import ports


def test_they_are_none_that_the_system_gives_away() -> None:
    found = ports.free_ports(50)
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert len(set(found)) == 50
    assert max(found) < int(given[0])


def test_one_that_somebody_listens_on_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((ports.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
        with pytest.raises(OSError, match="no 1 free ports"):
            ports.free_ports(1)
    assert ports.free_ports(1) == [port]
