"""NVML as a C library offers it, over made-up cards: real `pynvml` calls it through its own wrappers and structures."""

# ruff: noqa: N802  (functions are named as NVML names them)
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import count
from queue import Empty, Queue
from typing import Any

import pynvml

from tests.reconciler.node.nvml.card import Card, Part, RefusalError

Call = Callable[..., int]

NOT_FITTED = -2
"""A link that the chip has, and the board leads nowhere."""


def answers(function: Callable[..., Any]) -> Call:
    """The function as NVML has it: what it answers is a number, 0 if all is well."""

    @wraps(function)
    def call(*arguments: Any) -> int:
        try:
            return int(function(*arguments) or pynvml.NVML_SUCCESS)
        except RefusalError as failure:
            return failure.code

    return call


def put(reference: Any, value: int) -> None:
    """Into what a reference points at, a number or a handle."""
    place = reference._obj
    if hasattr(place, "value"):
        place.value = value
    else:
        ctypes.memmove(ctypes.addressof(place), ctypes.byref(ctypes.c_void_p(value)), ctypes.sizeof(ctypes.c_void_p))


def write(buffer: Any, size: Any, text: str) -> None:
    """A string into a buffer of the caller's."""
    if len(text) >= size.value:
        raise RefusalError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    buffer.value = text.encode()


class Library:
    """Its handles are numbers of its own. `failing`: what opening it answers. `missing`: functions that this version has not."""

    def __init__(self, cards: Iterable[Card] = (), failing: int = 0, missing: Iterable[str] = ()) -> None:
        self.cards = list(cards)
        self.failing = failing
        self.missing = set(missing)
        self.events: Queue[tuple[Card, int]] = Queue()
        self.registered: list[Card] = []
        self.waits = 0
        self.lost_when_waiting: Card | None = None
        self._behind: dict[int, Any] = {}
        self._handle_of: dict[Any, int] = {}
        self._handles = count(0x1000, 8)

    def __getattr__(self, name: str) -> Call:
        """The C function of that name."""
        functions = FUNCTIONS
        if name not in functions or name in self.missing:
            raise AttributeError(name)
        return answers(lambda *arguments: functions[name](self, *arguments))

    def handle(self, thing: Any) -> int:
        """The handle of a card, a part, a compute instance or a MIG device; the same each time."""
        if thing not in self._handle_of:
            self._handle_of[thing] = next(self._handles)
            self._behind[self._handle_of[thing]] = thing
        return self._handle_of[thing]

    def behind(self, handle: Any) -> Any:
        """What a handle is of."""
        number = handle if isinstance(handle, int) else ctypes.cast(handle, ctypes.c_void_p).value
        if number not in self._behind:
            raise RefusalError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._behind[number]

    def forget(self, handle: Any) -> None:
        """What was behind it is freed."""
        thing = self.behind(handle)
        del self._behind[self._handle_of.pop(thing)]

    def card(self, handle: Any) -> Card:
        """A card that answers."""
        card: Card = self.behind(handle)
        if card.lost:
            raise RefusalError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return card

    def part(self, handle: Any) -> tuple[Card, Part]:
        """A GPU instance that is there."""
        card, part = self.behind(handle)
        if part not in card.parts:
            raise RefusalError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return card, part

    def devices(self, card: Card) -> list[tuple[Card, Part, int]]:
        """Its MIG devices, as they are numbered."""
        return [(card, part, compute) for part in card.parts for compute in part.compute]


FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""By name; each takes the library and what the C function takes."""


def function(call: Callable[..., Any]) -> Callable[..., Any]:
    """List a function of the library."""
    FUNCTIONS[call.__name__] = call
    return call


@function
def nvmlInitWithFlags(library: Library, flags: int) -> int:
    return library.failing


@function
def nvmlShutdown(library: Library) -> None:
    return


@function
def nvmlSystemGetDriverVersion(library: Library, buffer: Any, size: Any) -> None:
    write(buffer, size, "580.95.05")


@function
def nvmlDeviceGetCount_v2(library: Library, found: Any) -> None:
    put(found, len(library.cards))


@function
def nvmlDeviceGetHandleByIndex_v2(library: Library, index: Any, found: Any) -> None:
    if index.value >= len(library.cards):
        raise RefusalError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    put(found, library.handle(library.card(library.handle(library.cards[index.value]))))


@function
def nvmlDeviceGetHandleByUUID(library: Library, uuid: Any, found: Any) -> None:
    name = uuid.value.decode()
    if any(card.lost for card in library.cards):
        raise RefusalError(pynvml.NVML_ERROR_GPU_IS_LOST)
    for card in library.cards:
        for device in library.devices(card):
            if device[1].names[device[2]] == name:
                return put(found, library.handle(device))
        if card.uuid == name:
            return put(found, library.handle(card))
    raise RefusalError(pynvml.NVML_ERROR_NOT_FOUND)


@function
def nvmlDeviceGetName(library: Library, device: Any, buffer: Any, size: Any) -> None:
    write(buffer, size, library.card(device).product)


@function
def nvmlDeviceGetUUID(library: Library, device: Any, buffer: Any, size: Any) -> None:
    thing = library.behind(device)
    write(buffer, size, thing[1].names[thing[2]] if isinstance(thing, tuple) else library.card(device).uuid)


@function
def nvmlDeviceGetMinorNumber(library: Library, device: Any, found: Any) -> None:
    put(found, library.card(device).number)


@function
def nvmlDeviceGetPciInfo_v3(library: Library, device: Any, found: Any) -> None:
    found._obj.busId = library.card(device).bus.encode()


@function
def nvmlDeviceGetMemoryInfo(library: Library, device: Any, found: Any) -> None:
    thing = library.behind(device)
    card = thing[0] if isinstance(thing, tuple) else library.card(device)
    found._obj.total, found._obj.used = card.total, card.used


@function
def nvmlDeviceGetTemperature(library: Library, device: Any, sensor: Any, found: Any) -> None:
    put(found, _has(library.card(device).temperature))


@function
def nvmlDeviceGetCurrentClocksEventReasons(library: Library, device: Any, found: Any) -> None:
    put(found, library.card(device).reasons)


@function
def nvmlDeviceGetCurrentClocksThrottleReasons(library: Library, device: Any, found: Any) -> None:
    put(found, library.card(device).reasons)


@function
def nvmlDeviceGetTotalEccErrors(library: Library, device: Any, kind: Any, counter: Any, found: Any) -> None:
    assert (kind.value, counter.value) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC)
    put(found, _has(library.card(device).uncorrectable))


@function
def nvmlDeviceGetRemappedRows(library: Library, device: Any, *found: Any) -> None:
    for reference, value in zip(found, _has(library.card(device).remapped), strict=True):
        put(reference, value)


@function
def nvmlDeviceGetNvLinkState(library: Library, device: Any, link: int, found: Any) -> None:
    links = library.card(device).links
    if link >= len(links):
        raise RefusalError(pynvml.NVML_ERROR_INVALID_ARGUMENT if links else pynvml.NVML_ERROR_NOT_SUPPORTED)
    if links[link] == NOT_FITTED:
        raise RefusalError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    put(found, int(links[link] is not None))


@function
def nvmlDeviceGetNvLinkRemoteDeviceType(library: Library, device: Any, link: int, found: Any) -> None:
    switch = library.card(device).links[link] == -1
    put(found, pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if switch else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU)


@function
def nvmlDeviceGetNvLinkRemotePciInfo_v2(library: Library, device: Any, link: int, found: Any) -> None:
    other = library.card(device).links[link]
    found._obj.busId = next(card.bus for card in library.cards if card.number == other).encode()


@function
def nvmlDeviceGetGpuFabricInfoV(library: Library, device: Any, found: Any) -> None:
    cluster = library.card(device).cluster
    found._obj.clusterUuid = (ctypes.c_uint8 * 16)(*cluster)
    found._obj.state, found._obj.cliqueId = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, 7


def _list_processes(library: Library, device: Any, size: Any, found: Any, pids: list[tuple[int, int | None]]) -> None:
    room, size._obj.value = size._obj.value, len(pids)
    if room < len(pids):
        raise RefusalError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for slot, (pid, instance) in zip(found or (), pids, strict=False):
        slot.pid, slot.gpuInstanceId = pid, 0xFFFFFFFF if instance is None else instance


@function
def nvmlDeviceGetComputeRunningProcesses_v3(library: Library, device: Any, size: Any, found: Any) -> None:
    _list_processes(library, device, size, found, library.card(device).pids)


@function
def nvmlDeviceGetGraphicsRunningProcesses_v3(library: Library, device: Any, size: Any, found: Any) -> None:
    _list_processes(library, device, size, found, [])


@function
def nvmlDeviceGetMPSComputeRunningProcesses_v3(library: Library, device: Any, size: Any, found: Any) -> None:
    _list_processes(library, device, size, found, [])


@function
def nvmlEventSetCreate(library: Library, found: Any) -> None:
    put(found, library.handle("events"))


@function
def nvmlDeviceRegisterEvents(library: Library, device: Any, kinds: Any, events: Any) -> None:
    assert kinds.value == pynvml.nvmlEventTypeXidCriticalError
    library.registered.append(library.card(device))


@function
def nvmlEventSetWait_v2(library: Library, events: Any, found: Any, timeout_ms: Any) -> None:
    library.waits += 1
    assert library.waits < 10_000, "it spins"
    if library.waits == 1 and library.lost_when_waiting:
        library.lost_when_waiting.lost = True
    if any(card.lost for card in library.registered):
        raise RefusalError(pynvml.NVML_ERROR_GPU_IS_LOST)
    try:
        card, xid = library.events.get(timeout=timeout_ms.value / 1_000)
    except Empty:
        raise RefusalError(pynvml.NVML_ERROR_TIMEOUT) from None
    event = found._obj
    handle = ctypes.c_void_p(library.handle(card))
    event.device = ctypes.cast(handle, type(event.device))
    event.eventType, event.eventData = pynvml.nvmlEventTypeXidCriticalError, xid


@function
def nvmlEventSetFree(library: Library, events: Any) -> None:
    library.registered.clear()


def _has(value: Any) -> Any:
    if value is None:
        raise RefusalError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return value
