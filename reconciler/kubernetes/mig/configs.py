"""The named configs of the MIG manager's ConfigMap: what each makes of a node's GPUs. Pure.

The format is mig-parted's (github.com/NVIDIA/mig-parted, api/spec/v1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import yaml

KEY = "config.yaml"
"""Under which the ConfigMap has them."""
Layout = tuple[str, ...] | None
"""The profiles of one GPU, sorted, each as often as it occurs; None: whole."""


class ConfigsUnreadableError(ValueError):
    """The text is no file of mig-parted's; the message says why."""


class _Entry(msgspec.Struct, frozen=True, rename="kebab"):
    devices: Literal["all"] | tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    mig_enabled: bool
    mig_devices: dict[str, Annotated[int, msgspec.Meta(ge=0, le=64)]] = {}
    device_filter: str | list[str] | None = None


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    version: Literal["v1"]
    mig_configs: dict[str, object]


class NamedConfig(NamedTuple):
    """A value of the label `nvidia.com/mig.config`, and what stands under it."""

    name: str
    entries: tuple[tuple[Literal["all"] | tuple[int, ...], Layout], ...]

    def layouts(self, gpus: int) -> tuple[Layout, ...] | None:
        """What each of a node's GPUs is to be; None: it leaves out some of them, or says two things of one."""
        found: dict[int, Layout] = {}
        for devices, layout in self.entries:
            for index in range(gpus) if devices == "all" else devices:
                if index in found or index >= gpus:
                    return None
                found[index] = layout
        return tuple(found[index] for index in range(gpus)) if len(found) == gpus else None


def read_configs(text: str) -> tuple[NamedConfig, ...]:
    """Those that are understood, sorted by name: not those that go by the kind of a device. Raises ConfigsUnreadableError."""
    try:
        file = msgspec.convert(yaml.safe_load(text), _File)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigsUnreadableError(str(error)) from error
    known = ((name, _entries(said)) for name, said in sorted(file.mig_configs.items()))
    return tuple(NamedConfig(name, entries) for name, entries in known if entries)


def _entries(said: object) -> tuple[tuple[Literal["all"] | tuple[int, ...], Layout], ...]:
    try:
        entries = msgspec.convert(said, list[_Entry])
    except msgspec.ValidationError:
        return ()
    if any(entry.device_filter is not None for entry in entries):
        return ()
    return tuple((entry.devices, _layout(entry)) for entry in entries)


def _layout(entry: _Entry) -> Layout:
    return tuple(sorted(Counter(entry.mig_devices).elements())) if entry.mig_enabled else None


def as_written(layouts: Sequence[Layout]) -> str:
    """The entries of a config with these layouts, as people add them to the ConfigMap."""
    return "[" + ", ".join(_written(layout, layouts) for layout in dict.fromkeys(layouts)) + "]"


def _written(layout: Layout, layouts: Sequence[Layout]) -> str:
    devices = [index for index, one in enumerate(layouts) if one == layout]
    if layout is None:
        return f"{{devices: {devices}, mig-enabled: false}}"
    profiles = ", ".join(_counts(layout))
    return f"{{devices: {devices}, mig-enabled: true, mig-devices: {{{profiles}}}}}"


def _counts(layout: tuple[str, ...]) -> Iterator[str]:
    return (f'"{name}": {count}' for name, count in sorted(Counter(layout).items()))
