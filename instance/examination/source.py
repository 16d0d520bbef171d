"""Read the source of a package's function or connector, without running its code.

Design: parsing is not harmless. Sixty kilobytes of source can take a gigabyte of memory and block the interpreter for
seconds, and deep nesting can crash the process. So servers call `read_source` in a limited process that is used only
once (`runtime.process.examinations`); the command line, whose user wrote the source, calls it directly.
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
"""Kinds of a package's class: a function, a connector, or the transform function of a built-in connector."""
_REASON_CHARACTERS_MAX = 2000


class SourceQuestion(NamedTuple):
    """A question about the source of a package; equal questions have equal answers.

    Attributes:
        package: a .py file or the directory of an extracted archive; its path contains the hash of the content.
        kind: `FUNCTION`, `SOURCE`, `SINK` or `TRANSFORM`.
        class_name: ``module.Class``, ``module.function``, or a module with a function `process`; for a connector, empty
            for the only connector class.
        transform: class of the transform function in a connector's package, or empty.
        is_batch: whether a source has a `batchSourceConfig`.
        finds_state_call: whether to look for the first use of the function's state.
        tenant: the package's tenant.
    """

    package: Path
    kind: str
    class_name: str
    transform: str = ""
    is_batch: bool = False
    finds_state_call: bool = False
    tenant: str = ""

    def to_json(self) -> dict[str, Any]:
        """Serialise the question for `from_json`."""
        return {**self._asdict(), "package": str(self.package)}

    @classmethod
    def from_json(cls, question: Mapping[str, Any]) -> SourceQuestion:
        """Parse a question written by `to_json`."""
        return cls(**{**question, "package": Path(question["package"])})


class Source(NamedTuple):
    """Facts about a package's source.

    Attributes:
        class_name: class name, also if the question left it empty.
        state_call: where the function first uses its state (`find_state_call`); empty if not found or not
            requested.
    """

    class_name: str
    state_call: str = ""


def read_source(question: SourceQuestion, reads: Callable[[str], None] = lambda _: None) -> Source:
    """Read the source of a package; blocking.

    Args:
        question: question about the package.
        reads: called with the name of each file before it is parsed.

    Raises:
        PackageError: one line about the problem.
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
