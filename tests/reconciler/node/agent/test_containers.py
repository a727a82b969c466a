"""An agent says whether its node runs containers, from its first word on, and once somebody has installed what it takes."""

from __future__ import annotations

from threading import Event

import msgspec

from reconciler.model.facts import NodeFacts
from reconciler.node.agent.containers import ContainerWatch
from reconciler.node.local.runtimes import NoContainersError, Processes, Runtime
from solver.model.cluster import NodeName
from solver.model.quantities import Instant

AT = Instant(1)
FACTS = NodeFacts(NodeName("n1"), AT)


def test_it_is_told_with_what_is_read_of_the_node() -> None:
    watch = ContainerWatch(Processes)
    watch.start()
    assert watch.added_to(lambda _: FACTS)(AT) == msgspec.structs.replace(FACTS, containers=True)
    assert watch.added_to(lambda _: None)(AT) is None
    watch.stop()


def test_a_node_without_is_asked_again_until_it_has_them() -> None:
    is_installed, asked = Event(), Event()

    def find() -> Runtime:
        if not is_installed.is_set():
            raise NoContainersError("podman is not installed")
        asked.set()
        return Processes()

    watch = ContainerWatch(find, every_s=0.01)
    watch.start()
    told = watch.added_to(lambda _: FACTS)
    assert told(AT) == msgspec.structs.replace(FACTS, containers=False)
    is_installed.set()
    assert asked.wait(60)
    watch._thread.join(60)
    assert told(AT) == msgspec.structs.replace(FACTS, containers=True)
    watch.stop()
