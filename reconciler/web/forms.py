"""What a form of the console sends."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import Depends, Request

from reconciler.api.job_routes import bounded_body
from reconciler.api.problems import RequestRefusedError

BYTES_MAX: Final = 20_000
_FIELDS_MAX: Final = 10
_KIND: Final = "application/x-www-form-urlencoded"


async def form_fields(request: Request) -> dict[str, str]:
    """What a form says, each field once. Raises RequestRefusedError for what is no form, or too long."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _KIND:
        raise RequestRefusedError(422, "invalid-parameter", f"A form is sent as {_KIND}.")
    body = await bounded_body(request)
    if len(body) > BYTES_MAX:
        raise RequestRefusedError(413, "too-large", f"A form has at most {BYTES_MAX} bytes.")
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise RequestRefusedError(422, "invalid-parameter", f"A form has at most {_FIELDS_MAX} fields.") from error
    return {name: values[0] for name, values in fields.items()}


FormFields = Annotated[dict[str, str], Depends(form_fields)]
