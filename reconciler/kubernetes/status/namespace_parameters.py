"""Which namespaces may use which queues, as data of the ConfigMap that the admission policy `quorate-namespaces` reads; pure.

Few keys, since the API server reads them all for each pod; in them words with a space between them:

- `namespaces`: a line for each namespace that is listed by its own name, with the leaves that it may use; `QUEUE:CLASS` where for
  one priority class alone. `beginnings`: the same for entries with a star, each as `vision-*=QUEUE`.
- `localNames`: a line for each namespace with what it calls queues beside their own names, as `NAME=QUEUE`. `sharedNames`: the same
  for entries with a star, each as `vision-*/NAME=QUEUE`.
- `selectors`: a line for each selector, which begins with its labels, each as `KEY=VALUE` and a comma between them; the rest is as
  in `namespaces`. `selectedNames`: likewise, and the rest is as in `localNames`.
- `closed`: the leaves that are open to listed namespaces alone. `unlisted`: allowed or refused. `classes`: those of the policy.

A line begins with its namespace, and a line break stands before the first one too: so a single search finds it.
Of several words for one name the first counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reconciler.kubernetes.objects.queue_names import LocalQueue
from solver.model.workload import QueueName
from solver.policy.namespace_rules import QueueEntry
from solver.policy.policy import NamespaceAccess, Policy
from solver.policy.tree import QueueTree

BYTES_MAX: Final = 900_000
"""Of keys and values. The server takes 1 MiB (1,048,576 bytes) of them."""
WORDS_MAX: Final = 5_000
"""Of one line. The server gives the expressions of one policy 10,000,000 units of work for a request, and each a tenth of that."""


class TooManyNamespacesError(Exception):
    """What the policy says of namespaces does not fit; the message says how much it is."""


def parameters_of(policy: Policy, local_queues: Iterable[LocalQueue]) -> dict[str, str] | None:
    """The data; None where namespaces are all alike. Raises TooManyNamespacesError."""
    tree = QueueTree.of(policy)
    if not tree.namespaces.say_something:
        return None
    open_to, called = _Words("="), _Words("/")
    for known in local_queues:
        called.by_name[known.namespace] += [f"{known.name}={known.queue}"]
    for entry in sorted(tree.namespaces.entries, key=lambda entry: entry.access.closeness, reverse=True):
        open_to.add(entry.access, _leaves(tree, entry))
        called.add(entry.access, (f"{name}={entry.queue}" for name in entry.access.local_queues))
    closed = sorted(name for name in filter(tree.is_leaf, tree.by_name) if _is_closed(tree, name))
    data = {
        "unlisted": tree.namespaces.unlisted,
        "namespaces": _lines(open_to.by_name),
        "beginnings": " ".join(open_to.by_beginning),
        "selectors": _lines(open_to.by_labels),
        "localNames": _lines(called.by_name),
        "sharedNames": " ".join(called.by_beginning),
        "selectedNames": _lines(called.by_labels),
        "closed": " ".join(closed),
        "classes": " ".join(known.name for known in policy.priority_classes),
    }
    return _fitting({key: value for key, value in data.items() if value})


def _lines(words: Mapping[str, Iterable[str]]) -> str:
    return "".join(f"\n{named} {' '.join(words[named])}" for named in words) + "\n" * bool(words)


class _Words:
    """What is said of namespaces, by how they are meant: by their names, how these begin, or labels; of each the closest first."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        """After the star of a beginning."""
        self.by_name = defaultdict[str, list[str]](list)
        self.by_labels = defaultdict[str, list[str]](list)
        self.by_beginning: list[str] = []

    def add(self, access: NamespaceAccess, words: Iterable[str]) -> None:
        for word in words:
            if access.selector is not None:
                self.by_labels[access.title].append(word)
            elif access.name.endswith("*"):
                self.by_beginning.append(f"{access.name}{self._mark}{word}")
            else:
                self.by_name[access.name].append(word)


def _leaves(tree: QueueTree, entry: QueueEntry) -> Iterator[str]:
    """The leaves at or below the queue of an entry, for each class that it names."""
    for name in sorted(filter(tree.is_leaf, tree.by_name)):
        if entry.queue in tree.path(name):
            classes = entry.access.priority_classes
            yield from (name,) if classes is None else (f"{name}:{known}" for known in classes)


def _is_closed(tree: QueueTree, name: QueueName) -> bool:
    return any(tree.by_name[step].access.namespaces for step in tree.path(name))


def _fitting(data: dict[str, str]) -> dict[str, str]:
    size = sum(len(key) + len(value) for key, value in data.items())
    words, longest = max((line.count(" ") + 1, key) for key, value in data.items() for line in value.split("\n"))
    if size > BYTES_MAX:
        raise TooManyNamespacesError(f"what queues say of namespaces has {size} bytes, at most {BYTES_MAX} are written")
    if words > WORDS_MAX:
        raise TooManyNamespacesError(f"{longest} has {words} words in a line, at most {WORDS_MAX} are written")
    return data
