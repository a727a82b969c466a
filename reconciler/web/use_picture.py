"""GPUs of one type that a queue held over time, stacked by the queues right below it, with its guarantee and its max."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from reconciler.model.queue_line import QueueLine
from reconciler.web.past import HeldOverTime, QueueAndType
from reconciler.web.queue_colours import COLOURS, OTHER, QueueColours
from reconciler.web.time_window import ShownWindow
from solver.model.cluster import GpuType
from solver.model.quantities import Instant, MilliGpu
from solver.model.workload import QueueName

REST: Final = "other queues"
_MS_PER_HOUR: Final = 3_600_000


class UseLayer(NamedTuple):
    """What one queue held: `path` in a box of steps by 100, upon those before it. `values`: on average in each step."""

    name: str
    colour: str
    path: str
    values: tuple[int, ...]
    average: int
    most: int
    gpu_hours: float


class UseLine(NamedTuple):
    """A level that does not change. `y`: how far from the top, in percent."""

    name: str
    y: float
    gpus: int


class UsePicture(NamedTuple):
    """`top`: what the height stands for, in thousandths of GPUs. `width`: what is over, in percent of the window: so many `steps`.

    `begins`: of each step, when it does.
    """

    gpu_type: str
    layers: tuple[UseLayer, ...]
    lines: tuple[UseLine, ...]
    top: int
    width: float
    steps: float
    begins: tuple[Instant, ...]

    @property
    def totals(self) -> tuple[int, ...]:
        """Of all layers, in each step."""
        return tuple(map(sum, zip(*(layer.values for layer in self.layers), strict=True)))


def use_picture(
    gpu_type: GpuType,
    used: HeldOverTime[QueueAndType],
    order: Sequence[QueueName],
    line: QueueLine | None,
    shown: ShownWindow,
    colours: QueueColours,
) -> UsePicture:
    """Of what each queue held in each step, from the bottom up in this `order`."""
    found, steps = used.of, used.steps
    named = {
        str(queue): tuple(map(int, found[queue, gpu_type])) for queue in order if any(found.get((queue, gpu_type), ()))
    }
    if len(named) > COLOURS:
        biggest = set(sorted(named, key=lambda name: -sum(named[name]))[:COLOURS])
        rest = tuple(map(sum, zip(*(values for name, values in named.items() if name not in biggest), strict=True)))
        named = {name: values for name, values in named.items() if name in biggest} | {REST: rest}
    totals = [sum(values) for values in zip(*named.values(), strict=True)]
    levels = [(name, int(level)) for name, level in _levels(line)]
    top = max((*totals, *(level for _, level in levels), 1000))
    top = -(-top * 21 // 20_000) * 1000  # Whole GPUs; the highest line is not to lie on the edge.
    return UsePicture(
        gpu_type,
        tuple(_layers(named, _palette(named, colours), used, top)),
        tuple(UseLine(name, round(100 - 100 * level / top, 2), level) for name, level in levels),
        top,
        shown.x(used.until),
        used.steps_over,
        tuple(steps.start.after(steps.step * number) for number in range(steps.number)),
    )


def _levels(line: QueueLine | None) -> Iterator[tuple[str, MilliGpu]]:
    if line is not None and line.guaranteed:
        yield "guaranteed", line.guaranteed
    if line is not None and line.max is not None:
        yield "max", line.max


def _palette(named: Mapping[str, Sequence[int]], colours: QueueColours) -> dict[str, str]:
    """Those of the map where they tell these queues apart."""
    own = {name: colours.of_queue(QueueName(name)) for name in named if name != REST}
    if OTHER in own.values() or len(set(own.values())) < len(own):
        own = {name: f"c{number}" for number, name in enumerate(own)}
    return {**own, REST: OTHER}


def _layers(
    named: Mapping[str, Sequence[int]], palette: Mapping[str, str], used: HeldOverTime[QueueAndType], top: int
) -> Iterator[UseLayer]:
    steps, passed = used.steps, used.steps_over
    base, over = [0] * steps.number, used.until - steps.start
    for name, values in named.items():
        upper = [below + value for below, value in zip(base, values, strict=True)]
        path = _outline(upper, base, top, passed)
        # The last step may not be over.
        lasted = [min(steps.step, over - steps.step * number) for number in range(steps.number)]
        gpu_ms = sum(value * length for value, length in zip(values, lasted, strict=True))
        yield UseLayer(
            name,
            palette[name],
            path,
            tuple(values),
            round(gpu_ms / over) if over else 0,
            max(values, default=0),
            gpu_ms / 1000 / _MS_PER_HOUR,
        )
        base = upper


def _outline(upper: Sequence[int], lower: Sequence[int], top: int, passed: float) -> str:
    """Along the top from left to right, and along the bottom back."""

    def y(level: int) -> str:
        return f"{round(100 - 100 * level / top, 2):g}"

    def stretch(at: int, level: int, *, back: bool = False) -> str:
        ends = f"{at}", f"{min(at + 1, passed):g}"
        return "".join(f"L{x} {y(level)}" for x in (reversed(ends) if back else ends))

    there = "".join(stretch(at, level) for at, level in enumerate(upper))
    back = "".join(stretch(at, level, back=True) for at, level in reversed(list(enumerate(lower))))
    return f"M0 {y(lower[0])}{there}{back}Z" if upper else ""
