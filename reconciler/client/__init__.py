"""The client of the API, for commands, programs and notebooks: `with connect() as client: client.jobs()`."""

from reconciler.client.client import Client, connect
from reconciler.client.transport import DEFAULT_SERVER, ApiError, NotAuthorisedError, ServerUnreachableError

__all__ = ["DEFAULT_SERVER", "ApiError", "Client", "NotAuthorisedError", "ServerUnreachableError", "connect"]
