"""A browser's part in signing in at an identity provider, done by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.reconciler.access.provider import Provider


@dataclass
class Visitor:
    """A browser: it follows no redirect by itself, keeps cookies, and sends them to the console alone.

    `outside`: the origin under which it knows the console that is reached at `url`.
    """

    url: str
    outside: str = ""
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, address: str) -> httpx2.Response:
        """A page of the console, or of another site."""
        return self._sent("GET", address)

    def post(self, address: str, form: dict[str, str]) -> httpx2.Response:
        return self._sent("POST", address, data=form)

    def _sent(self, method: str, address: str, **more: Any) -> httpx2.Response:
        known_as = self.outside or self.url
        own = address.startswith(("/", known_as))
        url = self.url + address.removeprefix(known_as) if own else address
        headers = {"host": urlsplit(known_as).netloc} if own else {}
        if method == "POST":
            headers["origin"] = known_as
        if own and self.cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = httpx2.request(method, url, headers=headers, trust_env=False, verify=False, timeout=60, **more)
        for each in answer.headers.get_list("set-cookie") if own else ():
            for name, cookie in SimpleCookie(each).items():
                self.cookies.pop(name, None)
                if cookie["max-age"] != "0":
                    self.cookies[name] = cookie.value
        return answer

    def to_provider(self, provider: Provider, wanted: str = "") -> httpx2.Response:
        """The link on the page to sign in: to the page of the provider."""
        query = f"?next={wanted}" if wanted else ""
        leads = self.get(f"/sign-in/with/{provider.place}{query}")
        assert leads.status_code == 303, leads.text
        return self.get(leads.headers["location"])

    def answers(self, form: httpx2.Response, provider: Provider, said: str = "yes") -> str:
        """What is pressed there leads back to this address."""
        hidden = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form.text))
        back = self.post(f"{provider.url}/authorize", {**hidden, "said": said})
        assert back.status_code == 303, back.text
        return str(back.headers["location"])

    def signs_in(self, provider: Provider, wanted: str = "") -> httpx2.Response:
        """All of it."""
        return self.get(self.answers(self.to_provider(provider, wanted), provider))
