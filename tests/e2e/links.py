"""How nodes reach control planes and each other, and how they are cut off: by namespaces on a switch, or by wires on loopback."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from tests.e2e.wire_between import Wire


class Link(Protocol):
    """That of one node."""

    def server(self, port: int) -> tuple[str, int]:
        """Where a control plane's port is reached, by this link alone."""

    def on_node(self, command: Sequence[str]) -> list[str]:
        """The command that runs this one on the node."""

    def cut(self) -> None:
        """Nothing gets through, and nobody is told so: as in a network partition."""

    def heal(self) -> None: ...


class Network(Protocol):
    """`host`: where control planes listen for agents. `described`: what it is, for a person."""

    @property
    def host(self) -> str: ...

    @property
    def described(self) -> str: ...

    def link(self, node: str) -> Link:
        """A new node's. It goes with the network."""


class NoNamespacesError(Exception):
    """This machine has none for us; the message says why."""


class Wires:
    """All nodes are on loopback, where they reach each other always. What they say to a control plane goes through wires."""

    host = "127.0.0.1"

    def __init__(self, closing: ExitStack, described: str = "wires on loopback") -> None:
        self.described = described
        self._closing = closing

    def link(self, node: str) -> Link:
        made = _Wired()
        self._closing.callback(made.close)
        return made


class _Wired:
    def __init__(self) -> None:
        self._wires: dict[int, Wire] = {}

    def server(self, port: int) -> tuple[str, int]:
        if port not in self._wires:
            self._wires[port] = Wire(port)
        return Wires.host, self._wires[port].port

    def on_node(self, command: Sequence[str]) -> list[str]:
        return list(command)

    def cut(self) -> None:
        for wire in self._wires.values():
            wire.cut()

    def heal(self) -> None:
        for wire in self._wires.values():
            wire.heal()

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()


class Namespaces:
    """Each node has a network namespace, with a link to a switch, which is a namespace too: the machine's own rules for packets
    don't count there, and with it goes all that was made. Control planes are at `host`, on the machine's own end of a link.
    """

    described = "a network namespace for each node"

    def __init__(self, closing: ExitStack) -> None:
        """Raises NoNamespacesError."""
        lacking = [program for program in ("ip", "nsenter") if shutil.which(program) is None]
        if lacking:
            raise NoNamespacesError(f"it lacks {' and '.join(lacking)} (Debian: iproute2, util-linux)")
        self._closing = closing
        self._name = f"quorate-{secrets.token_hex(3)}"
        # Of the range for trials of networks (RFC 2544), so that it meets no network that is in use.
        self._prefix = f"198.18.{secrets.randbelow(256)}"
        self._nodes = 0
        self.host = f"{self._prefix}.1"
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            raise NoNamespacesError(f"`{' '.join(error.cmd)}` says: {error.stderr.strip()}") from error

    def _make(self) -> None:
        switch, own = self._name, self._name.replace("quorate", "q")
        self._namespace(switch)
        _ip("-n", switch, "link", "add", "switch", "up", "type", "bridge")
        _ip("link", "add", own, "type", "veth", "peer", "name", "host", "netns", switch)
        _ip("-n", switch, "link", "set", "host", "master", "switch", "up")
        _ip("address", "add", f"{self.host}/24", "dev", own)
        _ip("link", "set", own, "up")

    def link(self, node: str) -> Link:
        self._nodes += 1
        space = f"{self._name}-{node}"
        self._namespace(space)
        _ip("-n", self._name, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", self._name, "link", "set", node, "master", "switch", "up")
        _ip("-n", space, "address", "add", f"{self._prefix}.{10 + self._nodes}/24", "dev", "eth0")
        for end in ("eth0", "lo"):
            _ip("-n", space, "link", "set", end, "up")
        return _Switched(self.host, space, lambda to: _ip("-n", self._name, "link", "set", node, to))

    def _namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        self._closing.callback(_ip, "netns", "delete", name)


class _Switched:
    def __init__(self, host: str, space: str, port: Callable[[str], None]) -> None:
        self._host = host
        self._space = space
        self._port = port

    def server(self, port: int) -> tuple[str, int]:
        return self._host, port

    def on_node(self, command: Sequence[str]) -> list[str]:
        # Not `ip netns exec`, which would hide the machine's control groups behind a /sys of its own.
        return ["nsenter", f"--net=/run/netns/{self._space}", "--", *command]

    def cut(self) -> None:
        """At the switch: the node still sends, and its packets are lost."""
        self._port("down")

    def heal(self) -> None:
        self._port("up")


@contextmanager
def wires() -> Iterator[Network]:
    with ExitStack() as closing:
        yield Wires(closing)


@contextmanager
def namespaces_or_wires() -> Iterator[Network]:
    """What comes nearest to a real network on this machine."""
    with ExitStack() as closing:
        found: Network
        try:
            found = Namespaces(closing)
        except NoNamespacesError as why:
            found = Wires(closing, f"wires on loopback, because this machine gives us no namespaces: {why}")
        yield found


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
