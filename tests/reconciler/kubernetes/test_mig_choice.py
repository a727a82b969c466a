"""The MIG manager's named configs: what they make of a node, and which one gives what a plan wants with the least change."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from reconciler.kubernetes.mig.choice import GeometryRequest, choose
from reconciler.kubernetes.mig.configs import ConfigsUnreadableError, as_written, read_configs
from reconciler.kubernetes.mig.slots import changed_between, layouts_of, offers_of, slots_of
from solver.policy.division import MigGeometry

SEVEN = {"1g.10gb": 7}
HALVES = {"3g.40gb": 2}
FREE = MigGeometry("g", "p", "free", "H100-80GB")
BOUNDED = MigGeometry("g", "p", "bounded", "H100-80GB", ("7x 1g.10gb",))


def part(devices: str | list[int], **profiles: Any) -> dict[str, Any]:
    of = profiles.get("of")
    return {"devices": devices, "mig-enabled": of is not None, **({"mig-devices": of} if of is not None else {})}


FILE = {
    "all-disabled": [part("all")],
    "all-1g": [part("all", of=SEVEN)],
    "first-1g": [part([0], of=SEVEN), part([1, 2, 3])],
    "one-of-each": [part([0], of=SEVEN), part([1], of=HALVES), part([2, 3])],
    "partly": [part([0], of=SEVEN)],
    "twice": [part("all"), part([0], of=SEVEN)],
    "filtered": [{**part("all", of=SEVEN), "device-filter": ["0x233010DE"]}],
    "unreadable": [{"devices": "some"}],
    "impossible": [part("all", of={"3g.40gb": 3})],
    "unknown-profile": [part("all", of={"9g.90gb": 1})],
    "misspelt": [part("all", of={"1g-10gb": 7})],
}
CONFIGS = read_configs(yaml.safe_dump({"version": "v1", "mig-configs": FILE}))
WHOLE = slots_of("H100-80GB", [None] * 4)


def wish(needs: dict[str, int], target: list[Any] | None = None, **said: Any) -> GeometryRequest:
    slots = slots_of("H100-80GB", target if target is not None else [None] * 4)
    known = {"geometry": FREE, "gpus": 4, "now": WHOLE, "current": "all-disabled", "changes_left": 8, **said}
    return GeometryRequest(target=slots, needs=needs, **known)


def chosen(asked: GeometryRequest) -> str | None:
    found = choose(CONFIGS, asked)
    return found.config if found else None


def test_what_is_not_understood_is_left_out() -> None:
    names = {config.name for config in CONFIGS}
    assert names == {"all-disabled", "all-1g", "first-1g", "one-of-each", "partly", "twice"} | {
        "impossible",
        "unknown-profile",
        "misspelt",
    }
    by_name = {config.name: config for config in CONFIGS}
    assert by_name["first-1g"].layouts(4) == (("1g.10gb",) * 7, None, None, None)
    assert by_name["partly"].layouts(4) is None  # it says nothing of three GPUs
    assert by_name["twice"].layouts(4) is None
    assert by_name["first-1g"].layouts(2) is None  # the node has no third


@pytest.mark.parametrize("text", ["[", "version: v2\nmig-configs: {}", "7", "version: v1"])
def test_a_file_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(ConfigsUnreadableError):
        read_configs(text)


@pytest.mark.parametrize(
    ("asked", "config"),
    [
        (wish({"1g.10gb": 1}), "first-1g"),  # one GPU changes, not all
        (wish({"1g.10gb": 8}), "all-1g"),
        (wish({"1g.10gb": 1, "": 3}), "first-1g"),
        (wish({"1g.10gb": 8, "": 1}), None),  # none leaves a whole GPU besides
        (wish({"3g.40gb": 2}), "one-of-each"),
        (wish({"3g.40gb": 2}, geometry=BOUNDED), None),  # the policy lists another layout
        (wish({"1g.10gb": 8}, changes_left=3), None),
        (wish({"1g.10gb": 1}, current="first-1g"), "one-of-each"),  # the manager does nothing about the same label
        (wish({"": 4}, now=slots_of("H100-80GB", [("1g.10gb",) * 7] * 4), current="all-1g"), "all-disabled"),
        (wish({"4g.40gb": 1}), None),
    ],
)
def test_the_least_change_that_gives_what_is_wanted(asked: GeometryRequest, config: str | None) -> None:
    assert chosen(asked) == config


def test_of_equal_changes_the_nearest_to_the_plan_and_then_the_first_by_name() -> None:
    two = {
        "b": [part([0], of=SEVEN), part([1])],
        "a": [part([0]), part([1], of=SEVEN)],
        "c": [part([0], of=HALVES), part([1])],
    }
    configs = read_configs(yaml.safe_dump({"version": "v1", "mig-configs": two}))
    asked = wish({"": 1}, [("3g.40gb",) * 2, None], gpus=2, now=slots_of("H100-80GB", [None, None]))
    found = choose(configs, asked)
    assert found is not None
    assert found.config == "c"
    found = choose(configs, wish({"1g.10gb": 1}, gpus=2, now=slots_of("H100-80GB", [None, None])))
    assert found is not None
    assert found.config == "a"


def test_slots_are_counted_as_the_device_plugin_counts() -> None:
    slots = slots_of("H100-80GB", [("1g.10gb", "1g.10gb+me"), None, ("1g.10gb",) * 5])
    assert offers_of(slots) == {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 6, "nvidia.com/mig-1g.10gb.me": 1}
    assert changed_between(WHOLE, slots_of("H100-80GB", [("1g.10gb",) * 7, None, None, None])) == 1
    assert changed_between(WHOLE, WHOLE) == 0


def test_what_people_are_advised_to_add_is_understood() -> None:
    layouts = layouts_of(slots_of("H100-80GB", [None, ("3g.40gb",) * 2, ("1g.10gb",) * 7]))
    text = f"version: v1\nmig-configs: {{mine: {as_written(layouts)}}}"
    (config,) = read_configs(text)
    assert config.layouts(3) == layouts
