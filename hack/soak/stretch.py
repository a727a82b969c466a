"""One seed for so many hours in this process, put by on the way, and what it showed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from hack.soak.soak import STORE, Sample, Soak, growth, longest
from solver.model.document import encode

SAMPLES, HOURS_APART_MAX = 30, 100
SAMPLES_JUDGED_MIN = 9
"""Growth is that of thirds: of fewer it would be chance."""
GROWING = ("objects", "rss_mb", "pass_ms")


@dataclass(frozen=True, slots=True)
class Stretch:
    """`state`: where it is put by; None: nowhere. `keep`: where the last round is kept, if anything is wrong after it."""

    hours: int
    seed: int
    state: Path | None = None
    keep: Path | None = None

    def run(self, say: Callable[[str], None]) -> dict[str, Any]:
        """Take up what was put by, or begin; `say` hears of each sample."""
        with tempfile.TemporaryDirectory(prefix="quorate-soak-") as folder:
            soak = self._begun(Path(folder) / STORE)

            def seen(sample: Sample) -> None:
                fields = msgspec.to_builtins(sample).items()
                say(" ".join([f"seed {self.seed}", *(f"{name} {value}" for name, value in fields)]))
                self._put_by(soak)

            came = soak.run(self.hours, max(min(self.hours // SAMPLES, HOURS_APART_MAX), 1), seen)
            if not came.problems:
                self._put_by(soak)
        for problem in came.problems:
            say(f"seed {self.seed} problem {problem}")
        if self.keep is not None and came.problems:
            self.keep.mkdir(parents=True, exist_ok=True)
            for name, decided in soak.decided.items():
                (self.keep / f"{name}.json").write_bytes(encode(decided))
        of_one = longest(came.samples)
        judged = of_one if len(of_one) >= SAMPLES_JUDGED_MIN else []
        return {
            "seed": self.seed,
            "hours": round(came.hours),
            "stretches": soak.stretch + 1,
            "passes": came.steps,
            **came.counts,
            "growth": {name: round(growth(judged, attrgetter(name)), 4) if judged else None for name in GROWING},
            "rssMb": max((sample.rss_mb for sample in came.samples), default=None),
            "storeMb": came.samples[-1].store_mb if came.samples else None,
            "cpuSeconds": round(came.cpu_s, 1),
            "hoursPerCpuMinute": round(came.hours / came.cpu_s * 60),
            "problems": came.problems,
        }

    @property
    def _folder(self) -> Path | None:
        return self.state and self.state / f"seed-{self.seed}"

    def _begun(self, path: Path) -> Soak:
        kept = _newest_first(self._folder)
        return Soak.resumed(kept[0], path) if kept else Soak(self.seed, path)

    def _put_by(self, soak: Soak) -> None:
        """The newest takes the place of those before it, once it is whole."""
        folder = self._folder
        if folder is None:
            return
        kept, name = _newest_first(folder), folder / f"{round(soak.outcome.hours):07}"
        if name not in kept:
            soak.put_by(name)
        for old in kept:
            if old != name:
                shutil.rmtree(old)


def _newest_first(folder: Path | None) -> list[Path]:
    known = folder.iterdir() if folder and folder.exists() else ()
    return sorted((put_by for put_by in known if put_by.name.isdigit()), reverse=True)
