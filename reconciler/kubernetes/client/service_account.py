"""Credentials of a pod: the service's address, and its service account's token, which is renewed in its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import InClusterConfigLoader

from reconciler.kubernetes.client.credentials import Credentials, Loaded
from reconciler.kubernetes.client.refusals import CredentialsError
from reconciler.model.clock import Clock

FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_READ_EVERY_S: Final = 60.0
"""A pod's token lives for an hour and is renewed in its file after most of it; client-go looks once a minute too."""


def in_cluster(environment: Mapping[str, str], clock: Clock, folder: Path = FOLDER) -> Credentials:
    """What a pod is given. Raises CredentialsError where this is no pod; its files are read when a session begins."""
    if not environment.get("KUBERNETES_SERVICE_HOST") or not environment.get("KUBERNETES_SERVICE_PORT"):
        raise CredentialsError("KUBERNETES_SERVICE_HOST is not set: this is no pod. Name a kubeconfig instead")
    return Credentials(ServiceAccount(environment, folder), clock)


class ServiceAccount:
    """A source that reads token and authority anew each minute."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder

    async def load(self) -> Loaded:
        """What lies in the folder now. Raises CredentialsError."""
        configuration = Configuration()
        loader = InClusterConfigLoader(
            token_filename=str(self._folder / "token"),
            cert_filename=str(self._folder / "ca.crt"),
            # Its own refresh goes by the wall clock, and raises out of a request while the file is being replaced.
            try_refresh_token=False,
            environ=self._environment,
        )
        try:
            loader.load_and_set(configuration)
        except (ConfigException, OSError, UnicodeDecodeError) as error:
            raise CredentialsError(
                f"{self._folder}: can't be read: {error}. Check that the service account's token is mounted and readable"
            ) from error
        token = str(configuration.api_key["BearerToken"]).split(maxsplit=1)  # it keeps the file's newline
        if len(token) < 2:
            raise CredentialsError(f"{self._folder / 'token'}: holds no token. Mount one")
        configuration.api_key["BearerToken"] = f"Bearer {token[1].strip()}"
        return Loaded(configuration, renewable=True, read_again_s=TOKEN_READ_EVERY_S)
