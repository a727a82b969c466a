"""Tasks that need several devices of one node: how many there is room for, who gets which, and where GPUs are changed for them."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from solver.capacity.instance_counts import best_spent
from solver.capacity.shared_gpus import dealt, tasks_on
from solver.model.cluster import DeviceId
from tests.drawn import worlds

SLOTS = st.lists(st.integers(0, 3), max_size=4)


def tried(slots: list[int], devices: int) -> int:
    """The most tasks that find so many different GPUs each, by trying all ways."""
    ways = (
        tried([left - (place in chosen) for place, left in enumerate(slots)], devices) + 1
        for chosen in combinations([place for place, left in enumerate(slots) if left], devices)
    )
    return max(ways, default=0)


@worlds(200)
@given(SLOTS, st.integers(1, 3))
def test_as_many_tasks_fit_as_find_different_gpus(slots: list[int], devices: int) -> None:
    most = tasks_on(slots, devices)
    assert most == tried(slots, devices)
    gpus = [DeviceId(str(place)) for place in range(len(slots))]
    for tasks in range(1, most + 1):
        given_out = dealt(zip(gpus, slots, strict=True), tasks, devices)
        assert [len(set(own)) for own in given_out] == [devices] * tasks
        assert all(sum(gpu in own for own in given_out) <= left for gpu, left in zip(gpus, slots, strict=True))


@worlds(200)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(sorted), max_size=4), st.integers(0, 4))
def test_changes_are_spent_so_that_few_more_would_find_a_place(found: list[list[int]], left: int) -> None:
    """The best step first is no search, and yet finds a place for one more task if there is one."""
    tasks = dict(enumerate(found))
    spent = best_spent(tasks, left)
    ways = [made for made in product(*(range(len(known)) for known in found)) if sum(made) <= left]
    best = max(sum(known[made] for known, made in zip(found, way, strict=True)) for way in ways)
    least = sum(known[0] for known in found)
    assert any(all(spent[n] == found[n][made] for n, made in enumerate(way)) for way in ways), "more than there is"
    assert least <= sum(spent.values()) <= best
    assert (sum(spent.values()) > least) == (best > least)
