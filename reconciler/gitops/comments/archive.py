"""One file of a ZIP archive that a stranger may have made: nothing is written, and no more is unpacked than asked for."""

from __future__ import annotations

import zlib
from io import BytesIO
from typing import Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

_ENCRYPTED: Final = 0x1
_BROKEN: Final = (BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError)


def packed_file(archive: bytes, name: str, bytes_max: int) -> bytes:
    """The first bytes of the file of that very name, at most one more than `bytes_max`; b"" where it can't be had.

    Other methods of packing than the usual one are not unpacked: some take memory as the archive says.
    """
    try:
        with ZipFile(BytesIO(archive)) as opened:
            found = opened.NameToInfo.get(name)
            if found is None or found.compress_type not in (ZIP_STORED, ZIP_DEFLATED) or found.flag_bits & _ENCRYPTED:
                return b""
            with opened.open(found) as file:
                return file.read(bytes_max + 1)
    except _BROKEN:
        return b""
