"""What pages say of rounds, read and worked out once for each: a record of a large cluster has some twenty megabytes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from reconciler.analysis.reports.layer_words import LayerLine, layer_lines
from reconciler.analysis.reports.plain_text import plain_of
from reconciler.analysis.reports.proof import proof_of
from reconciler.analysis.reports.step_words import step_line
from reconciler.api.problems import RequestRefusedError
from reconciler.control.metrics import reason_code
from reconciler.protocols.history import History
from reconciler.protocols.rounds import RoundRecord
from reconciler.web.round_changes import RoundChanges, round_changes
from solver.model.quantities import Instant
from solver.plan.plan import Inadmissible, Step, Verdict, Waits

STEPS_MAX: Final = 300
KEPT_MAX: Final = 50
"""Pages of rounds, and of differences, that are remembered."""

T = TypeVar("T")


class RoundTold(NamedTuple):
    """A round as its page says it. `base`: the complete round on which a few jobs were served alone; 0: it is complete itself.

    `steps`: the first of `step_count`, each as its verb and the rest. `waiting`: reasons by code, how many jobs have each, and one.
    `is_whole`: nothing of it follows.
    """

    number: int
    time: Instant
    revision: str
    base: int
    steps: tuple[tuple[str, str], ...]
    step_count: int
    waiting: tuple[tuple[str, int, str], ...]
    proven: str
    layers: tuple[LayerLine, ...]
    phase_ms: dict[str, float]
    is_whole: bool


class RoundReader:
    """Of one server. Any thread may ask; one at a time reads a record. Raises RequestRefusedError for what is not on record."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def told(self, number: int) -> RoundTold:
        """One round."""
        return self._known(number, lambda: (told := _told(self._record(number)), told.is_whole))

    def changes(self, before: int, after: int) -> RoundChanges:
        """What changed from one round to another."""

        def compared() -> tuple[RoundChanges, bool]:
            old, new = self._record(before), self._record(after)
            return round_changes(old, new), old.is_whole and new.is_whole

        return self._known((before, after), compared)

    def before(self, number: int) -> int:
        """The round before on record; 0: there is none."""
        found = self._history.rounds(1, number)
        return found[0].number if found else 0

    def _known(self, key: Hashable, read: Callable[[], tuple[T, bool]]) -> T:
        """What is remembered, or is read now: it is remembered where it stays."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                known: T = self._kept[key]
                return known
            found, stays = read()
            if stays:
                self._kept[key] = found
                if len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)
            return found

    def _record(self, number: int) -> RoundRecord:
        try:
            return self._history.round(number)
        except KeyError as error:
            raise RequestRefusedError(404, "unknown-round", f"There is no round {number}.") from error


def _told(record: RoundRecord) -> RoundTold:
    narrow = record.narrow[-1] if record.narrow else None
    steps: tuple[Step, ...] = narrow.steps if narrow is not None else record.plan.steps
    certificate = record.plan.certificate
    is_proven = narrow is None and certificate.stage != "none"
    return RoundTold(
        record.number,
        (narrow or record).time,
        (narrow or record).revision,
        narrow.base if narrow is not None else 0,
        tuple(_split(step_line(step)) for step in steps[:STEPS_MAX]),
        len(steps),
        () if narrow is not None else _counted(record.plan.verdicts),
        plain_of(proof_of(certificate)) if is_proven else "",
        layer_lines(certificate) if is_proven else (),
        (narrow or record).phase_ms,
        record.is_whole,
    )


def _split(line: str) -> tuple[str, str]:
    verb, rest = line.split(maxsplit=1)
    return verb, rest


def _counted(verdicts: Iterable[Verdict]) -> tuple[tuple[str, int, str], ...]:
    """Of jobs that wait or can never run: their most telling reasons by code, how many have each, and one as it is said."""
    counts, examples = Counter[str](), dict[str, str]()
    for verdict in verdicts:
        if isinstance(verdict, Waits | Inadmissible) and verdict.reasons:
            code = reason_code(verdict)
            counts[code] += 1
            examples.setdefault(code, f"{verdict.job}: {verdict.reasons[0]}")
    return tuple((code, number, examples[code]) for code, number in counts.most_common())
