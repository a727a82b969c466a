"""What every reason is, and the turns of phrase that reasons and verdicts share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from solver.model.document import Document
from solver.model.quantities import Cpu, Memory, MilliGpu

HostResource = Literal["cpu", "memory"]


class Reason(Document, frozen=True, tag_field="code"):
    """One binding constraint. `str` says it to a person."""


def too_little_in_one(level: str, wanted: MilliGpu, domain: str, free: MilliGpu) -> str:
    """What a gang needs in one domain of a level, and what it finds in the one with most room for it."""
    scattered = "" if free < wanted else ", where its tasks do not all fit"
    return f"needs {count(wanted.number, 'GPU')} in one {level}; the roomiest is {domain} with {free} free{scattered}"


def count(number: float, what: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def instances(profile: str, devices: int) -> str:
    """MIG instances as a layout writes them: `1g.10gb`, or `2x 1g.10gb`."""
    return profile if devices == 1 else f"{devices}x {profile}"


def gpus_each(gpus: MilliGpu, gpu_type: str, devices: int) -> str:
    """The GPUs of one task: `2 H100`, or of parts of several `0.5 of each of 2 H100`."""
    return f"{gpus} {gpu_type}" if devices == 1 else f"{MilliGpu(gpus // devices)} of each of {devices} {gpu_type}"


def at(origin: str) -> str:
    """The place in Git, where it is known."""
    return f" ({origin})" if origin else ""


def did_you_mean(nearest: tuple[str, ...]) -> str:
    """The names that are nearest to a wrong one, if any are near."""
    return f"; did you mean {', '.join(nearest)}?" if nearest else ""


NAMED_MAX: Final = 5
"""Of a list in a sentence."""


def some_of(names: Sequence[str]) -> str:
    """The first few of these names, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}"


def sentence(reasons: str) -> str:
    """Reasons with a full stop, but for those that end with a question, as `did_you_mean` has it."""
    return reasons if reasons.endswith("?") else f"{reasons}."


def beside_gpus(cpu: Cpu, memory: Memory) -> str:
    """CPU and memory in words; what is 0 is left out."""
    words = [f"{cpu} {'core' if cpu == 1000 else 'cores'}"] if cpu or not memory else []
    return " and ".join([*words, *([f"{memory} of memory"] if memory else [])])


def part_of(gpus: MilliGpu, keeps: MilliGpu) -> str:
    """The GPUs that a job gives up, `keeps` beside them."""
    return f"{gpus} of its {MilliGpu(gpus + keeps)} GPUs" if keeps else count(gpus.number, "GPU")


def among(node_set: str, nodes: int) -> str:
    """The nodes that a task is limited to, if it is."""
    return f" on the {count(nodes, 'node')} that it may be on ({node_set})" if node_set else ""
