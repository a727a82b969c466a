"""Stretches that know nothing of each other, each in a process of its own, so that each has memory of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from hack.soak.stretch import GROWING, Stretch

WORST = ("rssMb", "storeMb", "longestWaitHours")
NO_SUM = ("seed", "growth", *WORST, "hoursPerCpuMinute", "problems")


@dataclass(frozen=True, slots=True)
class Shards:
    """So many stretches like `first`, each with the next seed; `workers` of them at once."""

    first: Stretch
    number: int
    workers: int

    def run(self) -> list[dict[str, Any]]:
        """What each showed. One that ends without saying so raises CalledProcessError."""
        stretches = [replace(self.first, seed=self.first.seed + at) for at in range(self.number)]
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(_in_a_process, stretches))


def _in_a_process(one: Stretch) -> dict[str, Any]:
    command = [sys.executable, "-m", "hack.soak", "--hours", f"{one.hours}", "--seed", f"{one.seed}", "-o", "json"]
    command += ["--state", str(one.state)] if one.state else []
    command += ["--keep", str(one.keep / f"seed-{one.seed}")] if one.keep else []
    ended = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if ended.returncode not in (0, 1) or not ended.stdout:
        raise subprocess.CalledProcessError(ended.returncode, command)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def added_up(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One answer of several: sums of what is counted, and of memory the worst."""
    sums = Counter[str]()
    for one in found:
        sums.update({name: value for name, value in one.items() if name not in NO_SUM})
    grown = {
        name: max((one["growth"][name] for one in found if one["growth"][name] is not None), default=None)
        for name in GROWING
    }
    return {
        "seeds": [one["seed"] for one in found],
        **{name: round(value, 1) for name, value in sums.items()},
        "growth": grown,
        **{name: max((one[name] for one in found if one.get(name) is not None), default=None) for name in WORST},
        "hoursPerCpuMinute": round(sums["hours"] / sums["cpuSeconds"] * 60),
        "problems": [f"seed {one['seed']}: {problem}" for one in found for problem in one["problems"]],
    }
