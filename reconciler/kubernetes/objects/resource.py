"""What the API server calls a kind of object, and where it keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """`version`: v1, or GROUP/VERSION such as resource.k8s.io/v1. `plural`: as in the path, such as pods."""

    version: str
    plural: str

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of all objects, those of a namespace, one of them, or a subresource of it such as `binding`."""
        parts = [*(("namespaces", namespace) if namespace else ()), self.plural, name, subresource]
        root = "apis" if "/" in self.version else "api"
        return f"/{root}/{self.version}/" + "/".join(quote(part, safe="") for part in parts if part)


PODS = Resource("v1", "pods")
NODES = Resource("v1", "nodes")
VOLUME_CLAIMS = Resource("v1", "persistentvolumeclaims")
LEASES = Resource("coordination.k8s.io/v1", "leases")
