"""The clusters of a repository: which there are, and the files that each of them reads.

`policies/` is every cluster's. A cluster's inventory is in `cluster-state/NAME/`, and what it has otherwise than the others
in `clusters/NAME/policies/`. A repository with its inventory directly in `cluster-state/` has one cluster, without a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from reconciler.documents.files import Files, is_document
from reconciler.model.problem import START, Problem, did_you_mean, problem_at

INVENTORY = "cluster-state"
OVERRIDES = "clusters"

ONE_OF_A_KIND = f"There is one for a cluster: merge them. One in {OVERRIDES}/ replaces that of the same name."
"""What to do about a second document of a kind of which there is one."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class ClusterNotChosenError(Exception):
    """It is not clear which cluster is meant; `fix` names those that there are."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def clusters_of(files: Files) -> tuple[str, ...]:
    """The names of the clusters, sorted; () where the repository has one without a name."""
    return tuple(sorted({*_with_inventory(files), *_with_overrides(files)}))


def chosen(clusters: Iterable[str], cluster: str | None) -> str | None:
    """The cluster that is meant: the one named, else the only one (None: it has no name). Raises ClusterNotChosenError."""
    known = sorted(clusters)
    if cluster is None:
        if len(known) > 1:
            raise ClusterNotChosenError(
                "the repository has several clusters", f"Say which with --cluster: {', '.join(known)}."
            )
        return known[0] if known else None
    if not known:
        message = f"there is no cluster {cluster}: the repository has one, without a name"
        raise ClusterNotChosenError(message, f"Leave --cluster out, or move the inventory to {INVENTORY}/{cluster}/.")
    if cluster not in known:
        raise ClusterNotChosenError(f"there is no cluster {cluster}", did_you_mean(cluster, known))
    return cluster


def files_for(files: Files, cluster: str | None) -> Files:
    """What one cluster reads. Files of others are left out, and so is what is wrong with them; None: there are no others."""
    if cluster is None:
        return files
    contents = {path: raw for path, raw in files.contents.items() if _concerns(path, cluster)}
    return Files(contents, tuple(problem for problem in files.refused if _concerns(problem.file, cluster)))


def replaces(path: str, other: str) -> bool:
    """Whether a document in the one file takes the place of that of the same kind and name in the other."""
    return path.startswith(f"{OVERRIDES}/") and other.startswith("policies/")


def folder_for(folder: str, path: str) -> str:
    """Where documents that belong in `policies` or `cluster-state` do for the cluster that a file is of."""
    of, _, rest = path.partition("/")
    cluster, slash, _ = rest.partition("/")
    if of == OVERRIDES and slash:
        return f"{INVENTORY}/{cluster}" if folder == INVENTORY else f"{OVERRIDES}/{cluster}/{folder}"
    return folder


def layout_problems(files: Files) -> Iterator[Problem]:
    """What makes it unclear which cluster a file is of."""
    inventories, overrides = _with_inventory(files), _with_overrides(files)
    for cluster, path in sorted({**overrides, **inventories}.items()):
        if not _NAME.fullmatch(cluster):
            message = f"the folder's name {cluster[:63]!r} is not the name of a cluster"
            fix = "Use lower-case letters, digits and hyphens, at most 63."
            yield problem_at(path, START, "cluster-name", message, fix)
    flat = _flat_inventory(files)
    if flat and (inventories or overrides):
        names = " or ".join(f"{INVENTORY}/{cluster}/" for cluster in sorted({*inventories, *overrides}))
        message = "this is the inventory of no cluster: the repository has clusters by name"
        yield problem_at(flat, START, "mixed-inventory", message, f"Move it to {names}.")
    for cluster in sorted(overrides.keys() - inventories.keys()) if inventories else ():
        message = f"there is no cluster {cluster}: it has no inventory"
        fix = did_you_mean(cluster, inventories) or f"Add {INVENTORY}/{cluster}/."
        yield problem_at(overrides[cluster], START, "unknown-cluster", message, fix)


def _with_inventory(files: Files) -> dict[str, str]:
    """The clusters that declare their nodes, each with its first file."""
    return _first_files(files, INVENTORY)


def _with_overrides(files: Files) -> dict[str, str]:
    """The clusters that have documents of their own, each with its first file."""
    return _first_files(files, OVERRIDES)


def _first_files(files: Files, folder: str) -> dict[str, str]:
    # What is refused counts too: that a file can't be read makes no cluster disappear.
    paths = {*files.contents, *(problem.file for problem in files.refused)}
    found: dict[str, str] = {}
    for path in sorted(filter(is_document, paths)):
        of, _, rest = path.partition("/")
        cluster, slash, _ = rest.partition("/")
        if of == folder and slash:
            found.setdefault(cluster, path)
    return found


def _flat_inventory(files: Files) -> str | None:
    """The first document that lies directly in the folder of inventories."""
    flat = (path for path in files.contents if is_document(path) and path.count("/") == 1)
    return min((path for path in flat if path.startswith(f"{INVENTORY}/")), default=None)


def _concerns(path: str, cluster: str) -> bool:
    """Whether a file is the cluster's or shared."""
    of, _, rest = path.partition("/")
    owner, slash, _ = rest.partition("/")
    return of not in (INVENTORY, OVERRIDES) or not slash or owner == cluster
