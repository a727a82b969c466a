"""Who gives way to whom: the clock is a list of numbers, and connections are numbers of descriptors."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog
from structlog.testing import capture_logs

from reconciler.connections.gate import CLOSING_MAX, ConnectionGate, OpenConnection, peer_of
from reconciler.connections.limits import ConnectionLimits

HERE, THERE = "192.0.2.1", "198.51.100.1"


@dataclass
class Door:
    """A gate; those that are displaced close when `close` is called, as an event loop does it a moment later."""

    connections_max: int
    per_peer_max: int
    now_s: float = 0.0
    displaced: list[int] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        limits = ConnectionLimits(self.connections_max, self.per_peer_max)
        self.gate = ConnectionGate(limits, structlog.get_logger("quorate.test"), lambda: self.now_s)

    def knock(self, address: str = HERE) -> OpenConnection | None:
        self.now_s += 1
        number, self.count = self.count, self.count + 1
        admitted = self.gate.admit(number, address, lambda: self.displaced.append(number))
        return self.gate.found(number) if admitted else None

    def let_in(self, address: str = HERE) -> OpenConnection:
        connection = self.knock(address)
        assert connection is not None
        return connection


def test_the_one_that_has_waited_longest_gives_way() -> None:
    door = Door(3, 3)
    first, *_ = [door.let_in() for _ in range(3)]
    assert door.displaced == []
    door.now_s += 1
    door.gate.wait(first)  # its request was answered, and it is idle since now
    door.let_in()
    door.let_in()
    assert door.displaced == [1, 2]


def test_one_that_is_answered_stays_and_gives_way_only_afterwards() -> None:
    door = Door(2, 2)
    answered = door.let_in()
    door.gate.answer(answered)
    door.let_in()
    door.let_in()
    assert door.displaced == [1]
    door.gate.gone(1)
    door.gate.wait(answered)
    door.let_in()
    assert door.displaced == [1, 2]


def test_one_that_gave_way_before_its_protocol_began_does_not_give_way_twice() -> None:
    door = Door(20, 2)
    first, *_ = [door.let_in() for _ in range(2)]
    door.let_in()
    assert door.displaced == [0]
    door.gate.wait(first, door.now_s + 10)  # as asyncio makes its protocol, a moment after it was accepted
    door.let_in()
    assert door.displaced == [0, 1]


def test_where_all_are_answered_the_new_one_is_refused() -> None:
    door = Door(2, 2)
    for connection in (door.let_in(), door.let_in()):
        door.gate.answer(connection)
    assert door.knock() is None
    assert door.displaced == []
    door.gate.gone(0)
    assert door.knock() is not None


def test_a_peer_that_is_full_displaces_its_own() -> None:
    door = Door(10, 2)
    door.let_in(THERE)
    for _ in range(5):
        door.let_in(HERE)
        for number in door.displaced:
            door.gate.gone(number)
    assert door.displaced == [1, 2, 3]


def test_a_peer_whose_connections_are_all_answered_is_refused_and_another_is_not() -> None:
    door = Door(10, 2)
    for connection in (door.let_in(HERE), door.let_in(HERE)):
        door.gate.answer(connection)
    assert door.knock(HERE) is None
    assert door.knock(THERE) is not None


def test_those_that_are_kept_count_for_no_peer_and_never_give_way() -> None:
    door = Door(5, 1)
    for _ in range(4):
        door.gate.keep(door.let_in(HERE))
    door.let_in(HERE)
    door.let_in(HERE)
    assert door.displaced == [4]
    door.gate.gone(4)
    assert door.knock(THERE) is not None
    assert door.displaced == [4, 5]


def test_so_many_at_most_are_open_while_others_are_being_closed() -> None:
    door = Door(2, 2)
    while not door.gate.is_overfull:
        door.let_in()
    assert door.count == 2 + CLOSING_MAX
    door.gate.gone(0)
    assert not door.gate.is_overfull


def test_the_log_says_so_once_a_minute_with_how_many_there_were() -> None:
    door = Door(1, 1)
    with capture_logs() as lines:
        for _ in range(150):
            door.let_in()
            for number in door.displaced:
                door.gate.gone(number)
    assert [(line["event"], line["displaced"]) for line in lines] == [
        ("connections-full", 1), ("connections-full", 60), ("connections-full", 60)
    ]  # fmt: skip


def test_late_ones_are_told_and_then_let_go_of() -> None:
    door, told = Door(5, 5), []
    late, patient, answered = (door.let_in() for _ in range(3))
    for connection in (late, patient, answered):
        connection.late = lambda: told.append("late")
    door.gate.wait(late, deadline_s=10)
    door.gate.wait(patient, deadline_s=20)
    door.gate.wait(answered, deadline_s=10)
    door.gate.answer(answered)
    door.now_s = 9
    door.gate.sweep()
    assert (told, door.displaced) == ([], [])
    door.now_s = 10
    door.gate.sweep()
    assert (told, door.displaced) == (["late"], [])
    door.gate.sweep()
    assert (told, door.displaced) == (["late"], [0])


def test_peers_are_addresses_and_in_ipv6_networks() -> None:
    assert peer_of("192.0.2.1") == peer_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert peer_of("2001:db8::1") == peer_of("2001:db8::ffff:1") != peer_of("2001:db8:0:1::1")
    assert peer_of("fe80::1%eth0") == "fe80::/64"
    assert peer_of("") == ""
