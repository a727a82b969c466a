"""Runs exec plugins of kubeconfigs (client.authentication.k8s.io), such as those of EKS, GKE and AKS, for a limited time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode

from reconciler.kubernetes.client.refusals import CredentialsError

EXEC_S: Final = 60.0
"""A plugin that waits for a browser or a lost network is ended. Clouds' token services answer within seconds."""
ANSWER_BYTES_MAX: Final = 2**20
"""Of standard output; an ExecCredential has some kilobytes. What prints without end would have all memory within its time."""
SHOWN_MAX: Final = 500
"""Of what a plugin says on standard error, the end is shown: the reason stands last."""
_SAID_BYTES_MAX: Final = 4 * SHOWN_MAX  # as many characters, whatever they are
_STANDARD_ERROR: Final = 2
VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class ExecPlugin(ExecProvider):
    """The official client composes command, arguments and environment; running it here adds a limit and errors that say what to do.

    The official `run` waits for ever, for a plugin whose standard error fills its pipe, too, and takes whatever is printed. Raises
    CredentialsError.
    """

    args: list[str]
    env: dict[str, str]
    api_version: str

    def __init__(self, place: str, config: ConfigNode, cluster: Mapping[str, Any]) -> None:
        self._place = place
        self._hint = str(config.safe_get("installHint") or "").strip()
        try:
            super().__init__(config)
        except (ConfigException, KeyError, TypeError, ValueError) as error:
            raise CredentialsError(
                f"{place}: exec is malformed: {error}. Write command and apiVersion, args as a list, env as name and value"
            ) from error
        self.args = [str(word) for word in self.args]
        if self.api_version not in VERSIONS:
            raise CredentialsError(
                f"{place}: exec speaks {self.api_version}, which Kubernetes has removed. "
                f"Update the plugin, and make the kubeconfig anew with its {VERSIONS[0]}"
            )
        if config.safe_get("interactiveMode") == "Always":
            raise CredentialsError(
                f"{place}: exec {self.args[0]} wants a terminal (interactiveMode: Always), and there is none. "
                "Use a login without one"
            )
        spec: dict[str, Any] = {"interactive": False}
        if config.safe_get("provideClusterInfo"):
            spec["cluster"] = dict(cluster)
        asked = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        self.env["KUBERNETES_EXEC_INFO"] = json.dumps(asked)

    async def run(self, previous_response: None = None) -> dict[str, Any]:  # noqa: ARG002  (the official signature)
        """The status of its ExecCredential. Raises CredentialsError."""
        code, answer, said = await self._ended()
        if code:
            raise self._error(f"ended with exit code {code}", said, "Run it by hand to see what it needs")
        try:
            credential = json.loads(answer)
            status = credential["status"]
            kind, api_version = credential["kind"], credential["apiVersion"]
        except (ValueError, TypeError, KeyError) as error:
            problem = "printed no ExecCredential with apiVersion, kind and status"
            raise self._error(problem, said, "Run it by hand: nothing else may be on its standard output") from error
        if (kind, api_version) != ("ExecCredential", self.api_version):
            fix = f"Write apiVersion: {api_version} in the kubeconfig, or make the kubeconfig anew"
            raise self._error(f"answered as {api_version} to {self.api_version}", said, fix)
        if not isinstance(status, dict) or not (status.get("token") or status.get("clientCertificateData")):
            raise self._error("printed an ExecCredential without a token or certificate", said, "Log in anew")
        return status

    async def _ended(self) -> tuple[int, bytes, bytes]:
        pipe, loop = asyncio.subprocess.PIPE, asyncio.get_running_loop()
        try:
            process, output = await loop.subprocess_exec(
                _Output, *self.args, env=self.env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
            raise self._error(f"can't be started: {why}", b"", self._hint or "Install it, or correct PATH") from error
        try:
            async with asyncio.timeout(EXEC_S):
                await output.over
        except TimeoutError as error:
            raise self._error(
                f"had not ended after {EXEC_S:g} s and was killed", b"", "Log in by hand first"
            ) from error
        except _TooLongError as error:
            problem = f"printed more than {ANSWER_BYTES_MAX >> 20} MiB and was killed"
            raise self._error(problem, b"", "Run it by hand: nothing else may be on its standard output") from error
        finally:
            # Its children too: they would hold the pipes. Also where the waiting caller was cut off.
            with suppress(ProcessLookupError):
                os.killpg(process.get_pid(), signal.SIGKILL)
            await output.exited.wait()
            process.close()
        return process.get_returncode() or 0, bytes(output.answer), output.said

    def _error(self, problem: str, said: bytes, fix: str) -> CredentialsError:
        end = said.decode(errors="replace").strip()[-SHOWN_MAX:]
        return CredentialsError(
            f"{self._place}: the exec plugin {self.args[0]} {problem}{f': {end}' if end else ''}. {fix}"
        )


class _TooLongError(Exception):
    """There is more on standard output than an ExecCredential may have."""


class _Output(asyncio.SubprocessProtocol):
    """All of standard output, up to its limit, and the end of standard error. `over`: both pipes are closed, and it has ended."""

    def __init__(self) -> None:
        self.answer = bytearray()
        self.said = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STANDARD_ERROR:
            self.said = (self.said + data)[-_SAID_BYTES_MAX:]
        elif len(self.answer) + len(data) <= ANSWER_BYTES_MAX:
            self.answer += data
        elif not self.over.done():
            self.over.set_exception(_TooLongError())

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's)
        if not self.over.done():
            self.over.set_result(None)
