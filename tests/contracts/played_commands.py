"""What tasks that are played are asked to do, in worlds where nothing really runs."""

from __future__ import annotations

from tests.contracts.backend_world import Command


class PlayedCommands:
    """Of a world: the words of `reconciler/backends/simulated/behaviour.py`."""

    def succeeds(self) -> Command:
        return ("sleep", "5s")

    def fails(self, exit_code: int) -> Command:
        return ("fail", str(exit_code), "5s")

    def runs(self) -> Command:
        return ("sleep", "forever")

    def works(self) -> Command:
        return ("busy", "forever")

    def listens(self) -> Command:
        return ("save", "3s")

    def trains(self) -> Command:
        return ("train", "2.5")

    def hogs(self) -> Command:
        return ("hog", "128Mi")
