"""A wire between agents and a control plane that can be cut: what is sent while it is goes nowhere, as in a network partition."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress


class Wire:
    """`port` is where the other end of `target` (a port of loopback) is reached. A cut wire takes no new connections either."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._cut = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._thread = threading.Thread(target=self._carry)
        self._ended = threading.Event()
        self._thread.start()

    def cut(self) -> None:
        """Nothing gets through, and nobody is told so."""
        self._cut.set()

    def heal(self) -> None:
        """What hung is broken off; new connections get through."""
        self._cut.clear()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        for one in (self._listener, *(end for pair in self._pairs for end in pair)):
            one.close()

    def _carry(self) -> None:
        was_cut = False
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ, None)
            while not self._ended.is_set():
                if self._cut.is_set():
                    was_cut = True
                    self._ended.wait(0.05)
                    continue
                if was_cut:
                    was_cut = False
                    for one in [key.fileobj for key in selector.get_map().values() if key.data is not None]:
                        self._break(selector, one)  # type: ignore[arg-type]
                for key, _ in selector.select(0.05):
                    if key.data is None:
                        self._accept(selector)
                    else:
                        self._pass_on(selector, key.fileobj, key.data)  # type: ignore[arg-type]

    def _accept(self, selector: selectors.BaseSelector) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self.target))
        except ConnectionRefusedError:
            near.close()
            return
        self._pairs.append((near, far))
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)

    def _pass_on(self, selector: selectors.BaseSelector, one: socket.socket, other: socket.socket) -> None:
        try:
            content = one.recv(65_536)
            other.sendall(content)
        except OSError:
            content = b""
        if not content:
            self._break(selector, one)

    def _break(self, selector: selectors.BaseSelector, one: socket.socket) -> None:
        for pair in [pair for pair in self._pairs if one in pair]:
            self._pairs.remove(pair)
            for end in pair:
                with suppress(KeyError):
                    selector.unregister(end)
                end.close()
