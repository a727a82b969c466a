"""Reading documents in many threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

DOCUMENTS = """
from __future__ import annotations
from solver.model.document import Document, decode, from_builtins

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
text = b'{"parts": [{"name": "a"}], "named": {"b": {"inner": {"name": "c"}}}}'
value = {"parts": [{"name": "a"}], "named": {"b": {"inner": {"name": "c"}}}}
for number in range(200):
    made = sys.modules[f"made{number}"] = ModuleType(f"made{number}")
    exec(documents, made.__dict__)
    together = Barrier(8)

    def go():
        together.wait()
        assert getattr(made, read)(text if read == "decode" else value, made.Whole).parts[0].name == "a"

    threads = [Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


@pytest.mark.parametrize("read", ["decode", "from_builtins"])
def test_many_threads_may_be_the_first_to_read_a_kind_of_document(read: str) -> None:
    """Where each let msgspec learn it by itself, the process ended with a segmentation fault."""
    ended = subprocess.run([sys.executable, "-c", READ_BY_EIGHT, DOCUMENTS, read], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
