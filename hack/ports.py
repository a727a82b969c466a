"""Ports for servers that can't choose one by themselves and say which."""

from __future__ import annotations

import random
import socket
from typing import Final

HOST: Final = "127.0.0.1"
PORTS: Final = range(10_240, 20_000)
"""Below those that the system gives to outgoing connections and to who asks for any (from 32,768 on, ip(7)): nothing takes one
by chance before its server has. And below those where gangs meet (`meeting_port`)."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; were one taken before it is used, the start would fail with a message."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # One that was left a minute ago is free.
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{HOST} has no {count} free ports between {PORTS.start} and {PORTS.stop}. Stop what listens there")
