"""FastAPI reads what a handler takes and gives once in a process, not again for each of the servers that tests start.

That is most of what starting a server takes. What is read depends on a handler's function, not on the object that it is bound to.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import cache, wraps
from typing import Any

from fastapi import routing
from fastapi.dependencies import utils
from fastapi.dependencies.models import Dependant

Handler = Callable[..., Any]


def install() -> None:
    """In this process, from now on."""
    for name, remembering in (("get_dependant", _taken_once), ("get_typed_return_annotation", _given_once)):
        remembered = remembering(getattr(utils, name))
        for module in (utils, routing):
            assert hasattr(module, name), "FastAPI reads handlers otherwise"
            setattr(module, name, remembered)


def function_of(call: Handler) -> Handler | None:
    """What a handler does, whatever object it does it with; None for a function that is made anew each time."""
    if inspect.ismethod(call):
        return function_of(call.__func__)
    if inspect.isfunction(call):
        return None if call.__closure__ else call
    function = inspect.getattr_static(type(call), "__call__", None)
    return function if inspect.isfunction(function) else None


def _taken_once(read: Callable[..., Any]) -> Callable[..., Any]:
    known = dict[tuple[object, ...], dict[str, Any]]()

    @wraps(read)
    def remembered(*, call: Handler, **asked: Any) -> Any:
        function = function_of(call)
        if function is None:
            return read(call=call, **asked)
        key = function, *((name, tuple(it) if isinstance(it, list) else it) for name, it in asked.items())
        found = known.get(key)
        if found is None:
            taken = read(call=call, **asked)
            found = known[key] = {each.name: getattr(taken, each.name) for each in fields(taken) if each.name != "call"}
        # To these FastAPI adds those of routers and of the application.
        return Dependant(**found | {"dependencies": [*found["dependencies"]]}, call=call)

    return remembered


def _given_once(read: Callable[..., Any]) -> Callable[..., Any]:
    remembered = cache(read)
    return lambda call: read(call) if (function := function_of(call)) is None else remembered(function)
