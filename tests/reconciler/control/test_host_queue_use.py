"""What queues hold of CPU and memory, as it is told: beside what they are due, and only where a queue says anything of either."""

from __future__ import annotations

from pathlib import Path

from reconciler.control.queue_use import queue_uses
from reconciler.model.queue_line import HostQueueLine
from tests.scenarios.loader import read_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def lines_of(name: str) -> dict[str, tuple[HostQueueLine, ...]]:
    """By queue, of a scenario before its round."""
    known = read_scenario(SCENARIOS / f"{name}.yaml")
    return {queue.name: use.host for queue, use in queue_uses(known.snapshot, known.policy)}


def test_a_queue_has_its_quota_its_use_and_what_it_borrows() -> None:
    found = lines_of("host-guarantee-of-cores-starts-first")
    assert found["builds"] == (HostQueueLine("cpu", "96", None, "92", "60", "60", "0", "32"),)
    assert [(line.held, line.without_gpus, line.borrowed) for line in found["gpu"]] == [("96", "0", "0")]
    assert [line.borrowed for line in lines_of("host-fair-share-takes-cores-back")["batch"]] == ["96"]


def test_nothing_is_told_where_no_queue_says_anything_of_cpu_or_memory() -> None:
    assert set(lines_of("host-dominant-share-counts-where-no-queue-speaks-of-cores").values()) == {()}
