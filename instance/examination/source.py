"""What the source of a package says about its function or connector; none of its code runs.

Design: parsing is not harmless. Sixty kilobytes of source can take a gigabyte and seconds, with the interpreter held,
and deep nesting can end the process. So a server asks `read_source` in a process that has limits and ends after it
(`runtime.process.examinations`); the command line, whose user wrote the source, calls it directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import PackageError
from .connector_check import check_batching, connector_class
from .source_check import Modules, check_package
from .state_calls import find_state_call

FUNCTION, SOURCE, SINK, TRANSFORM = "function", "source", "sink", "transform"
"""What the class of a package is: a function, a connector, or the transform function of an installed connector."""
_REASON_CHARACTERS_MAX = 2000


class SourceQuestion(NamedTuple):
    """What is asked about the source of a package; the same question has the same answer.

    Attributes:
        package: a .py file or the directory of an extracted archive; its path has the hash of the content.
        kind: `FUNCTION`, `SOURCE`, `SINK` or `TRANSFORM`.
        class_name: ``module.Class``, ``module.function``, or a module with a function `process`; of a connector empty
            for the only one that there is.
        transform: the class of the transform function in the package of a connector; empty without one.
        is_batch: whether a source has a `batchSourceConfig`.
        finds_state_call: whether the first use of the function's state is looked for.
        tenant: whose package it is.
    """

    package: Path
    kind: str
    class_name: str
    transform: str = ""
    is_batch: bool = False
    finds_state_call: bool = False
    tenant: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the question as `from_json` reads it."""
        return {**self._asdict(), "package": str(self.package)}

    @classmethod
    def from_json(cls, question: Mapping[str, Any]) -> SourceQuestion:
        """Return the question that `to_json` has written."""
        return cls(**{**question, "package": Path(question["package"])})


class Source(NamedTuple):
    """What the source of a package says.

    Attributes:
        class_name: the class, also where the question left it open.
        state_call: where the function first uses its state (`find_state_call`); empty if that was not found or asked.
    """

    class_name: str
    state_call: str = ""


def read_source(question: SourceQuestion, reads: Callable[[str], None] = lambda _: None) -> Source:
    """Return what the source of a package says. Blocking.

    Args:
        question: about the package.
        reads: called with the name of each file before it is parsed.

    Raises:
        PackageError: says in one line what is missing or wrong.
    """
    modules = Modules(question.package, reads)
    class_name = question.class_name
    try:
        if question.transform:
            check_package(modules, question.transform)
        if question.kind in (SOURCE, SINK):
            class_name = connector_class(modules, class_name, question.kind)
        else:
            check_package(modules, class_name, installs=question.kind == FUNCTION)
        if question.kind == SOURCE:
            check_batching(modules, class_name, is_batch=question.is_batch)
        return Source(class_name, find_state_call(modules, class_name) if question.finds_state_call else "")
    except PackageError as error:
        raise PackageError(str(error)[:_REASON_CHARACTERS_MAX]) from error
