"""Reading documents in many threads."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from solver.model.document import Document, encode, pack, unpack
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu

DOCUMENTS = """
from __future__ import annotations
from solver.model.document import Document, decode, from_builtins, unpack

class Part(Document, frozen=True):
    name: str = ""
    inner: Part | None = None

class Whole(Document, frozen=True):
    parts: tuple[Part, ...] = ()
    named: dict[str, Part] = {}
"""

READ_BY_EIGHT = """
import sys
from threading import Barrier, Thread
from types import ModuleType

sys.setswitchinterval(1e-7)
documents, read = sys.argv[1:]
from solver.model.document import pack

value = {"parts": [{"name": "a"}], "named": {"b": {"inner": {"name": "c"}}}}
texts = {"decode": b'{"parts": [{"name": "a"}], "named": {"b": {"inner": {"name": "c"}}}}', "unpack": pack(value)}
for number in range(200):
    made = sys.modules[f"made{number}"] = ModuleType(f"made{number}")
    exec(documents, made.__dict__)
    together = Barrier(8)

    def go():
        together.wait()
        assert getattr(made, read)(texts.get(read, value), made.Whole).parts[0].name == "a"

    threads = [Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


class Quantities(Document, frozen=True):
    memory: Memory
    gpus: MilliGpu
    at: Instant | None = None


@pytest.mark.parametrize(
    "value", [Quantities(Memory(3 << 30), MilliGpu(250)), Quantities(Memory(0), MilliGpu(8_000), Instant(-5))]
)
def test_what_is_packed_is_read_back_as_it_was(value: Quantities) -> None:
    again = unpack(pack(value), Quantities)
    assert (again, encode(again)) == (value, encode(value))
    assert type(again.memory) is Memory


@pytest.mark.parametrize("packed", [pack({"memory": "3Gi", "gpus": 0}), pack({"memory": True, "gpus": 0}), pack(3)])
def test_what_is_no_packed_document_is_refused(packed: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, NotImplementedError)):
        unpack(packed, Quantities)


def test_what_is_neither_data_nor_a_quantity_can_not_be_packed() -> None:
    with pytest.raises(NotImplementedError, match="no way to write a object"):
        pack(object())


def test_quantities_that_are_alike_are_unpacked_as_one_object() -> None:
    """Of 100,000 GPUs with the same memory each had its own. Equal numbers of two units are two, and what is no number is none."""
    first, second, cpu = (unpack(pack(one), type(one)) for one in (Memory(7), Memory(7), Cpu(7)))
    assert first is second
    assert (type(first), type(cpu)) == (Memory, Cpu)
    for wrong in (True, 7.0, "7", [7]):
        with pytest.raises((msgspec.ValidationError, NotImplementedError)):
            unpack(pack(wrong), Memory)


@pytest.mark.parametrize("read", ["decode", "from_builtins", "unpack"])
def test_many_threads_may_be_the_first_to_read_a_kind_of_document(read: str) -> None:
    """Where each let msgspec learn it by itself, the process ended with a segmentation fault."""
    ended = subprocess.run([sys.executable, "-c", READ_BY_EIGHT, DOCUMENTS, read], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
