"""Asks the API server through kubectl: for credentials that only it understands, such as impersonation."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from reconciler.kubernetes.client.refusals import (
    CredentialsError,
    NotAllowedError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UnreadableError,
)

T = TypeVar("T")
_REASON = re.compile(r"Error from server \((\w+)\): (.*)", re.DOTALL)
_ERRORS: dict[str, tuple[type[RefusedError], int]] = {
    "NotFound": (NotFoundError, 404),
    "Forbidden": (NotAllowedError, 403),
    "Unauthorized": (NotAllowedError, 401),
}


class ThroughKubectl:
    """What reads need of the client, by `kubectl get --raw`. Raises KubernetesError as it does, and CredentialsError."""

    def __init__(self, program: str, context: str | None) -> None:
        self._command = [program, *(["--context", context] if context else [])]

    async def get(self, path: str, kind: type[T], parameters: Mapping[str, str] | None = None) -> T:
        """One object, or one page of a list, decoded as `kind`."""
        answer = await self._ran("get", "--raw", f"{path}?{urlencode(parameters)}" if parameters else path)
        try:
            return msgspec.json.decode(answer, type=kind)
        except msgspec.MsgspecError as error:
            raise UnreadableError(f"{path}: {error}") from error

    async def namespace(self) -> str:
        """The namespace of the context."""
        view = await self._ran("config", "view", "--minify", "-o", "jsonpath={..namespace}")
        return view.decode().strip() or "default"

    async def _ran(self, *arguments: str) -> bytes:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self._command, *arguments, stdout=pipe, stderr=pipe)
        answer, problem = await process.communicate()
        if process.returncode == 0:
            return answer
        said, request = problem.decode(errors="replace").strip(), f"kubectl {' '.join(arguments)}"
        found = _REASON.search(said)
        if said.startswith("error:"):  # of kubectl's own: of its command line, or of the kubeconfig
            raise CredentialsError(f"{request}: {said.removeprefix('error:').strip()}")
        if found is None:
            raise UnreachableError(f"{request}: {said}")
        kind, status = _ERRORS.get(found[1], (RefusedError, 400))
        raise kind(request, status, found[1], found[2])
