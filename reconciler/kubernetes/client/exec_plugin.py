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
SHOWN_MAX: Final = 500
"""Of what a plugin says on standard error, the end is shown: the reason stands last."""
VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class ExecPlugin(ExecProvider):
    """The official client composes command, arguments and environment; running it here adds a limit and errors that say what to do.

    The official `run` waits for ever, and for a plugin whose standard error fills its pipe. Raises CredentialsError.
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
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *self.args, env=self.env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
            raise self._error(f"can't be started: {why}", b"", self._hint or "Install it, or correct PATH") from error
        try:
            async with asyncio.timeout(EXEC_S):
                answer, said = await process.communicate()
        except TimeoutError as error:
            raise self._error(
                f"had not ended after {EXEC_S:g} s and was killed", b"", "Log in by hand first"
            ) from error
        finally:
            # Its children too: they would hold the pipes. Also where whoever waited for it was cut off.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return process.returncode or 0, answer, said

    def _error(self, problem: str, said: bytes, fix: str) -> CredentialsError:
        end = said.decode(errors="replace").strip()[-SHOWN_MAX:]
        return CredentialsError(
            f"{self._place}: the exec plugin {self.args[0]} {problem}{f': {end}' if end else ''}. {fix}"
        )
