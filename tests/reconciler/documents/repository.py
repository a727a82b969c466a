"""Small repositories for tests: files by path, and what reading them says."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.documents.files import Files
from reconciler.documents.repository import Reading, read_repository

POOL = """\
apiVersion: quorate.dev/v1
kind: NodePool
metadata: {name: big}
spec: {gpuType: H100, gpusPerNode: 8, cpu: 64, memory: 1Ti, nodes: {prefix: big-, count: 10}}
"""


def reading(files: Mapping[str, str]) -> Reading:
    return read_repository(Files({path: text.encode() for path, text in files.items()}))


def codes(files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Place (`file:line:column`, the folder left out where it is `policies`) and code of every problem."""
    return [
        (f"{problem.file.removeprefix('policies/')}:{problem.line}:{problem.column}", problem.code)
        for problem in reading(files).problems
    ]


def queue(name: str, spec: str) -> str:
    return f"apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def topology(name: str, spec: str) -> str:
    return f"apiVersion: quorate.dev/v1\nkind: Topology\nmetadata: {{name: {name}}}\nspec: {spec}\n"
