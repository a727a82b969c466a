"""Runs a command in a container by pods/exec, over a websocket (v5.channel.k8s.io, KEP-4006); only how it ends is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import aiohttp
import msgspec

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import UnreachableError
from reconciler.kubernetes.objects.resource import PODS

PROTOCOL: Final = "v5.channel.k8s.io"
_ENDED: Final = 3
"""The channel on which the server says how it ended; before that, 1 and 2 are what the command writes."""
_SHOWN_MAX: Final = 200


class ExecFailedError(Exception):
    """The command has ended otherwise than with 0, or could not be run; the message says how."""


class _Status(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""


async def execute(api: Api, pod: tuple[str, str], container: str, command: Sequence[str]) -> None:
    """Returns once the command has ended with 0; takes as long as it does. Raises CommandFailedError, KubernetesError.

    A caller that stops waiting does not stop the command.
    """
    # Without something to write to there is no stream, and without a stream nothing is run.
    parameters = [("container", container), ("stdout", "true"), *(("command", word) for word in command)]
    path = PODS.path(*pod, "exec")
    async with api.channels(path, parameters, PROTOCOL) as channels:
        async for message in channels:
            if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == bytes([_ENDED]):
                ended = _read(message.data[1:])
                if ended.status != "Success":
                    raise ExecFailedError(ended.message[:_SHOWN_MAX] or "it failed, without a message")
                return
    raise UnreachableError(f"websocket {path}: it broke off before the command had ended")


def _read(said: bytes) -> _Status:
    try:
        return msgspec.json.decode(said, type=_Status)
    except msgspec.MsgspecError as error:
        raise UnreachableError(f"the end of a command can't be read: {error}") from error
