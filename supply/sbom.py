"""Write what an installed covan stands on, as CycloneDX: every package that it needs to run, from the locks.

    python supply/sbom.py OUTPUT

CMake runs this for a wheel, which carries it as ``sboms/covan-mlir.cdx.json`` beside its metadata (PEP 770). torch's
CPU build, which may stand in for torch, and what only the other one needs are marked as optional. The same locks give
the same bytes: the date is ``SOURCE_DATE_EPOCH`` (seconds since 1970), or the earliest that a wheel can hold.
"""

from __future__ import annotations

import os
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import pins
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from pins import Pin

_EARLIEST = 315532800
"""Seconds from 1970 to 1980, when ZIP's dates begin."""


def bill_of_materials() -> str:
    """CycloneDX 1.6, as JSON."""
    project = tomllib.loads((pins.ROOT / "pyproject.toml").read_text())["project"]
    root = Component(
        name=project["name"],
        version=project["version"],
        type=ComponentType.LIBRARY,
        bom_ref=project["name"],
        purl=PackageURL("pypi", name=project["name"], version=project["version"]),
        licenses=[LicenseExpression(project["license"])],
    )
    required, optional = pins.read(pins.RUNTIME), [*pins.read(pins.TORCH_CPU), *pins.read(pins.TORCH_CUDA)]
    components = [
        *(_component(pin, ComponentScope.REQUIRED) for pin in required),
        *(_component(pin, ComponentScope.OPTIONAL) for pin in optional),
    ]
    date = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", _EARLIEST)), UTC)
    bom = Bom(
        components=components,
        metadata=BomMetaData(component=root, timestamp=date),
        serial_number=uuid5(NAMESPACE_URL, "\n".join([str(root.purl), *map(str, (*required, *optional))])),
    )
    bom.register_dependency(root, components)
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _component(pin: Pin, scope: ComponentScope) -> Component:
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{pin.name}=={pin.version}",
        scope=scope,
        purl=PackageURL("pypi", name=pin.name, version=pin.version),
        # One of these is the hash of the file that was installed: which one, the platform decides.
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content) for content in pin.hashes],
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(bill_of_materials() + "\n")
