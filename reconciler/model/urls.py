"""Which URLs are safe to read from."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_safe_url(url: str) -> bool:
    """Whether what is read from a URL comes from the host it names: by TLS, or from this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.username is not None or parts.fragment or not host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
