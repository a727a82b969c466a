"""Credentials from kubeconfigs, merged as kubectl merges them and read by the official client's loader."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from pathlib import Path
from typing import Any, Final

import structlog
import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.dateutil import parse_rfc3339
from kubernetes.aio.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader

from reconciler.access.secret_file import SECRETS, SecretFile, SecretProblem
from reconciler.kubernetes.client import oidc
from reconciler.kubernetes.client.credentials import Credentials, Loaded
from reconciler.kubernetes.client.exec_plugin import ExecPlugin
from reconciler.kubernetes.client.refusals import CredentialsError
from reconciler.model.clock import Clock

READ_EVERY_S: Final = 60.0
"""Tokens, certificates and their files are looked at again so often; client-go reads a `tokenFile` as often."""

_LISTS: Final = (("clusters", "cluster"), ("contexts", "context"), ("users", "user"))
_PATHS: Final = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
    "context": (),
}
_OTHER_ACCOUNT = "The official client would leave it out and speak as another account. Name the account itself"
_FIX: Final = {
    "username": "Kubernetes has had no passwords since 1.19; use a token or a client certificate",
    "as": _OTHER_ACCOUNT,
    "as-uid": _OTHER_ACCOUNT,
    "as-groups": _OTHER_ACCOUNT,
    "as-user-extra": _OTHER_ACCOUNT,
}
"""What kubectl understands and the official client does not, or no server any more."""
_PLUGINS: Final = {
    "gcp": "Install gke-gcloud-auth-plugin, then: gcloud container clusters get-credentials NAME",
    "azure": "Install kubelogin, then: kubelogin convert-kubeconfig",
}


def from_kubeconfig(paths: Path | Sequence[Path], clock: Clock, context: str | None = None) -> Credentials:
    """A context of these files, the current one unless stated. Raises CredentialsError; plugins run when a session begins."""
    return Credentials(Kubeconfig(paths, clock, context), clock)


def kubeconfig_paths(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Which kubeconfigs kubectl would merge: those of KUBECONFIG that are there, else that of the home folder."""
    named = tuple(Path(name).expanduser() for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name)
    return tuple(path for path in named if path.exists()) or named[:1] or (Path.home() / ".kube" / "config",)


@dataclass(frozen=True, slots=True)
class MergedKubeconfig:
    """The files as one. `users_from`: in which file a user stands."""

    content: dict[str, Any]
    users_from: Mapping[str, Path]


class Kubeconfig:
    """A context of merged kubeconfigs; the source of credentials. Raises CredentialsError where a person has to mend it."""

    def __init__(self, paths: Path | Sequence[Path], clock: Clock, context: str | None = None) -> None:
        several = (paths,) if isinstance(paths, Path) else tuple(paths)
        self._place = ", ".join(str(path) for path in several)
        self._clock = clock
        self._asked = context
        self._sources = [SecretFile(path, _read, CredentialsError) for path in several]
        self._contents: list[dict[str, Any]] = []
        self._problem = ""
        self._look()
        SECRETS.add(self)

    @property
    def place(self) -> str:
        """The files."""
        return self._place

    def look(self) -> SecretProblem | None:
        """What is wrong with what they say together; of each alone its own reader tells."""
        return SecretProblem(self._problem, is_kept=True) if self._problem else None

    def _look(self) -> None:
        """At the files, if they are others than before: what is wrong with them by now leaves what they said before in force.

        What was refreshed and could not be written stays.
        """
        contents, before = [source() for source in self._sources], dict(vars(self))
        if len(contents) == len(self._contents) and all(map(is_, contents, self._contents)):
            return
        problem = ""
        try:
            self._take(contents)
        except CredentialsError as error:
            if not self._contents:
                raise
            vars(self).update(before)
            problem = str(error)
            told = {"file": self._place, "problem": str(error), "kept": "what they said before"}
            structlog.get_logger("quorate").error("secret-unusable", **told)
        self._contents, self._problem = contents, problem

    def _take(self, contents: Sequence[dict[str, Any]]) -> None:
        self._merged = _merged(
            [(source.path, content) for source, content in zip(self._sources, contents, strict=True)]
        )
        self._name = self._asked or self._merged.content.get("current-context")
        self._context = self._named("contexts", "context", self._name)
        self._cluster = self._named("clusters", "cluster", self._context.get("cluster"))
        user = self._context.get("user")
        self._user = self._named("users", "user", user) if user else {}
        self._check()

    def namespace(self) -> str:
        """What the context means where none is named."""
        return str(self._context.get("namespace") or "default")

    async def load(self) -> Loaded:
        """What it says now; runs the plugin, reads the token's file or refreshes the ID token where it has to."""
        self._look()
        configuration = Configuration()
        loader = _Loader(self._place, self._merged.content, str(self._name), self._clock)
        try:
            await loader.load_and_set(configuration)
        except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._error(str(error), "Make that entry anew") from error
        header = configuration.api_key.get("BearerToken")
        if header is not None and len(words := str(header).split()) != 2:
            raise self._error(f"its token has {len(words) - 1} words instead of one", "Make the token anew")
        if header is not None:
            configuration.api_key["BearerToken"] = str(header).strip()  # a file's newline
        if loader.refreshed:
            name = str(self._context["user"])
            oidc.keep(self._merged.users_from[name], name, loader.refreshed)
        # Plugins and issuers say when their tokens end; what stands in files may be replaced at any time.
        told = any(self._user.get(key) for key in ("exec", "auth-provider"))
        read_again = {} if told else {"read_again_s": READ_EVERY_S}
        return Loaded(configuration, renewable=True, ends_s=loader.ends_s, certificate=loader.certificate, **read_again)

    def _check(self) -> None:
        for key, fix in _FIX.items():
            if self._user.get(key):
                raise self._error(f"{key} is not supported", fix)
        provider = self._user.get("auth-provider")
        kind = provider.get("name") if isinstance(provider, dict) else None
        if provider and kind != "oidc":
            fix = _PLUGINS.get(str(kind), "Use the exec plugin of that provider")
            raise self._error(f"auth-provider {kind} is not supported, nor by Kubernetes since 1.26", fix)
        server = str(self._cluster.get("server", ""))
        if not server.startswith("https://"):
            raise self._error(f"the server {server!r} is not reached over https", "Name its https:// address")
        proxy = str(self._cluster.get("proxy-url") or "http://")
        if not proxy.startswith(("http://", "https://")):
            raise self._error(f"proxy-url {proxy!r} is not supported", "Name an http:// or https:// proxy")

    def _named(self, several: str, one: str, name: object) -> dict[str, Any]:
        for entry in self._merged.content[several]:
            if name and entry["name"] == name:
                found: dict[str, Any] = entry[one]
                return found
        names = ", ".join(sorted(entry["name"] for entry in self._merged.content[several])) or "there is none at all"
        raise self._error(f"there is no {one} {name!r}", f"Choose one: {names}")

    def _error(self, problem: str, fix: str) -> CredentialsError:
        return CredentialsError(f"{self._place}: {problem}. {fix}")


class _Loader(KubeConfigLoader):
    """The official loader, but for plugins, whose errors it only logs, and ID tokens (docs/dependencies.md)."""

    _user: ConfigNode

    def __init__(self, place: str, content: dict[str, Any], context: str, clock: Clock) -> None:
        super().__init__(content, active_context=context, config_base_path="")
        self._place = place
        self._clock = clock
        if self._user is None:  # a context without user; its own code would fail on it
            self._user = ConfigNode("user", {})
        self.ends_s = float("inf")
        self.certificate = ""
        self.refreshed: dict[str, str] = {}

    async def load_from_exec_plugin(self) -> bool:
        cluster = self._cluster.value
        status = await ExecPlugin(self._place, self._user["exec"], _told_to_plugin(cluster)).run()
        if status.get("token"):
            self.token = f"Bearer {status['token']}"
        if status.get("clientCertificateData"):
            if not status.get("clientKeyData"):
                raise ConfigException("the exec plugin gave a certificate without its key")
            self.certificate = str(status["clientCertificateData"])
            self.cert_file = _in_file(status, "clientCertificateData")
            self.key_file = _in_file(status, "clientKeyData")
        if status.get("expirationTimestamp"):
            self._ends(parse_rfc3339(str(status["expirationTimestamp"])).timestamp())
        return True

    async def _load_oid_token(self) -> str:
        config = self._user["auth-provider"]["config"].value
        ends = oidc.ends_at(str(config["id-token"])) if config.get("id-token") else 0.0
        if ends is not None and ends - self._now_s() <= oidc.REFRESH_BEFORE_S:
            self.refreshed = await oidc.refresh_tokens(self._place, config)
            config.update(self.refreshed)
            ends = oidc.ends_at(self.refreshed["id-token"])
        if ends is not None:
            self._ends(ends)
        self.token = f"Bearer {config['id-token']}"
        return self.token

    def _ends(self, at_s: float) -> None:
        self.ends_s = at_s - self._now_s()

    def _now_s(self) -> float:
        return int(self._clock.now()) / 1000


def _merged(files: Sequence[tuple[Path, dict[str, Any]]]) -> MergedKubeconfig:
    """The files as kubectl merges them: the first that names something wins, and paths are seen from the file that names them.

    The official merger takes the last current-context, sees a user's files from the cluster's folder, splits paths at `:`, and
    writes users with their tokens into error messages. Raises CredentialsError.
    """
    content: dict[str, Any] = {"current-context": "", **{several: [] for several, _ in _LISTS}}
    users_from: dict[str, Path] = {}
    for path, read in files:
        content["current-context"] = content["current-context"] or read.get("current-context") or ""
        for several, one in _LISTS:
            known = {entry["name"] for entry in content[several]}
            for name, entry in _entries(path, read, several, one):
                if name not in known:
                    known.add(name)
                    content[several].append({"name": name, one: _resolved(path, one, entry)})
                    if one == "user":
                        users_from[name] = path
    return MergedKubeconfig(content, users_from)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise CredentialsError(f"{path}: can't be read: {error.strerror}. Name another with KUBECONFIG") from error
    except yaml.YAMLError as error:
        # Its own message shows the line, which may hold a key.
        mark = getattr(error, "problem_mark", None)
        line = f" from line {mark.line + 1} on" if mark else ""
        raise CredentialsError(f"{path}: is no YAML{line}. Make it anew") from None
    if not isinstance(content, dict):
        raise CredentialsError(f"{path}: the file is empty or no mapping. Make it anew")
    return content


def _entries(path: Path, content: dict[str, Any], several: str, one: str) -> Sequence[tuple[str, dict[str, Any]]]:
    found = content.get(several) or []
    try:
        return [(str(entry["name"]), dict(entry.get(one) or {})) for entry in found]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise CredentialsError(f"{path}: {several} is no list of entries with name and {one}. Make it anew") from error


def _resolved(path: Path, one: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Without what is empty, which the official loader prefers to a file; a token's file goes before a token, as with kubectl."""
    stated = {key: value for key, value in entry.items() if value not in (None, "")}
    folder = path.absolute().parent
    stated |= {key: str(folder / str(stated[key])) for key in _PATHS[one] if key in stated}
    plugin = stated.get("exec")
    if isinstance(plugin, dict) and "/" in str(plugin.get("command", "")):
        stated["exec"] = {**plugin, "command": str(folder / str(plugin["command"]))}
    if "tokenFile" in stated:
        stated.pop("token", None)
    return stated


def _told_to_plugin(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """`provideClusterInfo`: the cluster as an ExecCredential names it."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    told = {name: cluster[name] for name in names if name in cluster}
    if "certificate-authority" in cluster and "certificate-authority-data" not in cluster:
        told["certificate-authority-data"] = FileOrData(cluster, "certificate-authority").as_data()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told


def _in_file(status: Mapping[str, Any], key: str) -> str:
    return str(FileOrData(status, None, data_key_name=key, base64_file_content=False).as_file())
