"""Frees objects that refer to each other, without a garbage collection of everything else.

CPython frees an object when its last reference ends. Objects in a cycle need the garbage collector, which scans all
objects: with 100,000 loaded topics that stops the event loop for seconds. `free` examines one group of objects instead,
by the rule of the collector: if all references to them come from the group itself, nothing can use them any longer.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from types import CellType, MethodType

_CONTAINERS = frozenset({dict, list, tuple, set, frozenset, deque, MethodType, partial, CellType})
MAX_OBJECTS = 10_000
"""Larger groups are left to the garbage collector."""


def free(held: list[object], is_part: Callable[[type], bool]) -> bool:
    """Free an object and the objects that belong to it, unless something else still refers to one of them.

    Args:
        held: contains only the object, and is the caller's only reference to it; emptied if the object was freed.
        is_part: returns whether instances of a class belong to such an object. Other instances are shared: they are
            neither examined nor changed.

    Returns:
        whether it was freed; if not, nothing has changed.
    """
    nodes, edges, counts = _explored(held, is_part)
    if len(nodes) > MAX_OBJECTS:
        return False
    counts[0] += 1  # the reference in ``held``
    reached = [index for index, node in enumerate(nodes) if sys.getrefcount(node) - counts[index] > _OWN]
    seen = set(reached)
    while reached:
        index = reached.pop()
        if is_part(type(nodes[index])):
            return False
        fresh = edges[index] - seen
        seen |= fresh
        reached += fresh
    for node in nodes:
        if is_part(type(node)) and hasattr(node, "__dict__"):
            vars(node).clear()
    held.clear()
    return True


def _explored(held: list[object], is_part: Callable[[type], bool]) -> tuple[list[object], list[set[int]], list[int]]:
    """Return the group, which objects of it each one refers to, and how many references to each come from the group."""
    nodes = [held[0]]
    index_of = {id(nodes[0]): 0}
    edges: list[set[int]] = []
    counts = [0]
    for node in nodes:
        targets: set[int] = set()
        edges.append(targets)
        for other in gc.get_referents(node):
            kind = type(other)
            if kind not in _CONTAINERS and not is_part(kind):
                continue
            index = index_of.get(id(other))
            if index is None:
                index = index_of[id(other)] = len(nodes)
                nodes.append(other)
                counts.append(0)
            counts[index] += 1
            targets.add(index)
        if len(nodes) > MAX_OBJECTS:
            break
    return nodes, edges, counts


def _own_references() -> int:
    """Return how many references the loop in `free` itself has to each object, which depends on the interpreter."""
    nodes = [object()]
    return next(sys.getrefcount(node) for index, node in enumerate(nodes))


_OWN = _own_references()
