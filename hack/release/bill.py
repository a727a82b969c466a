"""The bill of materials (SBOM) in CycloneDX's JSON: every package that Quorate runs on, by version, hash and licence."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

from hack.image_lock import wishes
from hack.release.source import Source
from hack.supply_chain.licences import licence_of
from hack.supply_chain.packages import Package, locked, normal

LOCK: Final = "deploy/image/requirements.txt"


def bill(source: Source, target: Path) -> Path:
    """Write it. Raises ProblemError where a locked package is not installed here: its licence stands in its own files."""
    packages = tuple(locked(source.root / LOCK))
    file = target / f"quorate-{source.version}.cdx.json"
    file.write_text(JsonV1Dot6(_bill(source, packages)).output_as_string(indent=2) + "\n", "utf-8")
    return file


def _bill(source: Source, packages: Iterable[Package]) -> Bom:
    known = {package.name: package for package in packages}
    parts = {name: _component(package) for name, package in known.items()}
    root = _root(source)
    made = Bom(
        serial_number=uuid5(NAMESPACE_URL, f"quorate.dev/{source.version}/{source.commit}"),
        metadata=BomMetaData(component=root, timestamp=datetime.fromtimestamp(source.epoch_s, UTC)),
        components=parts.values(),
    )
    asked = {normal(Requirement(text).name) for text in wishes()}
    made.register_dependency(root, [parts[name] for name in sorted(asked & parts.keys())])
    for name, package in known.items():
        made.register_dependency(parts[name], [parts[each] for each in sorted(package.needs() & parts.keys() - {name})])
    return made


def _root(source: Source) -> Component:
    return Component(
        name="quorate",
        version=source.version,
        type=ComponentType.APPLICATION,
        bom_ref=f"quorate@{source.version}",
        licenses=[LicenseExpression("Apache-2.0")],
        properties=[Property(name="quorate:commit", value=source.commit)],
    )


def _component(package: Package) -> Component:
    """Its hashes are those of wheels: one for each platform, or one for all."""
    url = PackageURL("pypi", name=package.name, version=package.version)
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=str(url),
        purl=url,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=each) for each in package.hashes],
        licenses=[LicenseExpression(licence_of(package))],
    )
