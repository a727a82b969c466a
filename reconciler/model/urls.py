"""Which URLs are safe to read from, and which may be this server's own."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"https": 443, "http": 80}
"""Which browsers leave out."""


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


def external_origin(url: str) -> str:
    """Scheme, host and port of a URL under which browsers find a server, as they write it in Origin (RFC 6454, section 6.2).

    Raises ValueError, which says what is wrong with it.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise ValueError("expected https://HOST or https://HOST:PORT")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("the console needs a host of its own: nothing may follow the host and port")
    if not is_safe_url(url):
        raise ValueError("the cookie needs HTTPS: browsers keep it over plain HTTP from the machine itself alone")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
