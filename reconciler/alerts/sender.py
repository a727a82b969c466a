"""Sends one message to one webhook: looks up what may not stand in Git, signs, posts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.alerts.message import Message, headers_of
from reconciler.alerts.policy import Webhook
from reconciler.alerts.post import post
from reconciler.alerts.secret_files import SecretFileError, read_keys, read_secret
from reconciler.model.clock import Clock
from reconciler.model.urls import is_safe_url
from reconciler.model.webhook_delivery import DeliveryResult


@dataclass(frozen=True, slots=True)
class Sender:
    """`secrets` is the folder of the files that policies name; they are read anew for each message, so that they can be changed."""

    secrets: Path
    clock: Clock

    async def send(self, webhook: Webhook, message: Message) -> DeliveryResult:
        """What came of one try."""
        try:
            url = webhook.url or read_secret(self.secrets, webhook.url_file)
            keys = read_keys(self.secrets, webhook.secret_file) if webhook.secret_file else ()
        except SecretFileError as error:
            return DeliveryResult(str(error))
        if not is_safe_url(url):
            return DeliveryResult(f"{webhook.url_file} holds no https URL")
        now = self.clock.now()
        return await post(url, headers_of(message, now, keys, webhook.headers), message.body, now)
