"""Which images the jobs of a cluster may run in."""

from __future__ import annotations

import re
from typing import Final

from solver.model.document import Document

_BY_DIGEST: Final = re.compile(r"[^@]+@sha256:[0-9a-f]{64}")
"""As the OCI Distribution Specification names a manifest by its content."""


class ImagePolicy(Document, frozen=True):
    """`registries`: beginnings of names, of which one must fit; None: any image will do."""

    require_digest: bool = False
    registries: tuple[str, ...] | None = None

    def refusal(self, image: str) -> tuple[str, str] | None:
        """Why no job may run in this image, and what to do about it; None: it may."""
        if self.registries is not None and not any(image.startswith(f"{known}/") for known in self.registries):
            allowed = ", ".join(self.registries)
            return f"the image {image} is from no registry that policy allows", f"Use one from {allowed}."
        if self.require_digest and not _BY_DIGEST.fullmatch(image):
            message = f"the image {image} is not named by its digest, as policy demands"
            return (
                message,
                f"Write it as {image.partition('@')[0]}@sha256:DIGEST (podman image inspect --format '{{{{.Digest}}}}').",
            )
        return None
