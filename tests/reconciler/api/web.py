"""Plain HTTP to a server of a test. Reading the certificates of the machine for each request would take longer than the rest."""

from __future__ import annotations

import httpx2

WEB = httpx2.Client(verify=False, trust_env=False, timeout=60, limits=httpx2.Limits(max_keepalive_connections=0))
