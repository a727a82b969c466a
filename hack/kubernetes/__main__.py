"""`python -m hack.kubernetes [--with NAME,NAME]`: gets what the tests need, and those named besides, and says where they are."""

from __future__ import annotations

import argparse
import sys

from hack.kubernetes.components import API_SERVER, ETCD, OPTIONAL, ComponentMissingError, completed, place


def main(arguments: list[str]) -> int:
    """Exit code 0 if all are there, 1 with a message if not, 64 for a name that is none of theirs."""
    parser = argparse.ArgumentParser(prog="python -m hack.kubernetes", description=__doc__)
    also = f"also {', '.join(OPTIONAL)}; several with commas, or one after the other"
    parser.add_argument("--with", dest="more", metavar="NAME,NAME", action="append", default=[], help=also)
    wanted = [name for names in parser.parse_args(arguments).more for name in names.split(",") if name]
    if unknown := set(wanted) - {ETCD, API_SERVER, *OPTIONAL}:
        print(f"{', '.join(sorted(unknown))}: not built here. There are {', '.join(OPTIONAL)}", file=sys.stderr)
        return 64
    try:
        where = completed(place(), tuple(dict.fromkeys((ETCD, API_SERVER, *wanted))))
    except ComponentMissingError as error:
        print(error, file=sys.stderr)
        return 1
    print(where.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
