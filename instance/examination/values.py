"""Check whether a function's annotations and its config contradict each other, using the real converters.

Design: `load_values` decides in an instance how messages are converted, so it is called here too, and its error is
returned verbatim. Topic schemas, which require a broker, are checked later, when topics are opened.

The function's class is not instantiated: its `process` is inspected as far as the class shows it. Classes of SerDes and
schemas are instantiated, because nothing else about them can be checked.

The check is skipped if the result may differ where the instance runs:

- The package tried to import a module that was not found, even if it caught the error, because it may have defined a
  substitute.
- A class in the config is in a module that is neither in the package nor here, and the package has a requirements.txt.
- A required library, such as fastavro, is not installed here.

A function annotated ``-> None`` may have an output topic, and publish there through its context.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...client.schemas.schema import Schema
from ...errors import FunctionLoadError
from ...wire.functions_pb2 import FunctionDetails
from ...wire.printable import one_line
from ..loading.loader import ProcessHome, module_root, requirements_of
from ..values.loading import load_values
from ..values.writers import Found

if TYPE_CHECKING:
    from ..values.topic_schemas import TopicSchema

_HELPERS = (
    "<frozen ", str(Path(importlib.__file__ or "").parent), str(Path(inspect.getfile(ProcessHome)).parent),
)  # fmt: skip
"""Path prefixes of modules that import on behalf of others."""


class ExaminedHome(ProcessHome):
    """Home of a package under examination, which records failed imports.

    Attributes:
        root: directory of the package's modules.
        missed: first module that the package's code failed to import, or empty.
    """

    def __init__(self, package: Path) -> None:
        """Create the home of a package, and start recording failed imports."""
        super().__init__(package)
        self.missed = ""
        self.root = module_root(package)
        self._installs = requirements_of(package) is not None
        sys.meta_path.append(_LastFinder(self))

    def import_module(self, name: str) -> ModuleType:
        """Import a module; raises `NotJudged` instead of ModuleNotFoundError if requirements may provide it."""
        try:
            return super().import_module(name)
        except ModuleNotFoundError as error:
            if self._installs and not self.has((error.name or "").partition(".")[0]):
                raise NotJudged from error
            raise

    def has(self, name: str) -> bool:
        """Return whether the package has a module with this name."""
        place = self.root.joinpath(*name.split("."))
        return bool(name) and (place.with_suffix(".py").is_file() or place.is_dir())

    def take_miss(self, name: str, file: str) -> None:
        """Record a failed import of a module by a file of the package."""
        if not self.has(name.partition(".")[0]) and Path(file).is_relative_to(self.root):
            self.missed = self.missed or name


class NotJudged(Exception):
    """The object to examine may be provided by requirements that are not installed here."""


class _LastFinder:
    """The last import finder: records modules that no other finder has found."""

    def __init__(self, home: ExaminedHome) -> None:
        self._home = home

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Record a missing module, and return None; called by importlib."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(_HELPERS) and frame.f_back is not None:
            frame = frame.f_back
        self._home.take_miss(fullname, frame.f_code.co_filename)
        return None


class _NoTopics:
    """Stands in for topics, which are not opened."""

    def use(self, inputs: dict[str, TopicSchema], output_topic: str, output: TopicSchema | None) -> None:
        """Do nothing."""

    def writer(self, schema: Schema[Any], topic: str, version: bytes) -> Found:
        """Return None."""
        return None


def value_settings(details: FunctionDetails) -> bytes:
    """Return the part of a function's record that concerns its values, in serialised form.

    The result is equal for records with the same part. Topic names are included only if an error would name them.
    """
    found = FunctionDetails()
    found.source.typeClassName = details.source.typeClassName
    for topic, given in details.source.inputSpecs.items():
        kept = found.source.inputSpecs[topic if given.schemaType or given.serdeClassName else ""]
        kept.schemaType, kept.serdeClassName = given.schemaType, given.serdeClassName
        kept.schemaProperties.update(given.schemaProperties)
    found.sink.typeClassName = details.sink.typeClassName
    found.sink.schemaType, found.sink.serDeClassName = details.sink.schemaType, details.sink.serDeClassName
    found.sink.schemaProperties.update(details.sink.schemaProperties)
    return found.SerializeToString(deterministic=True)


def value_refusal(found: Any, home: ExaminedHome, class_name: str, settings: bytes) -> str:
    """Return why a function's messages cannot be converted, on one line; empty if no reason was found.

    Args:
        found: function, or its class.
        home: home that has loaded it.
        class_name: name of the function or class.
        settings: result of `value_settings`.
    """
    function = called(found)
    if function is None:
        return ""
    details = FunctionDetails.FromString(settings)
    details.className = class_name
    reason = ""
    try:
        load_values(details, home, function, _NoTopics())
    except FunctionLoadError as error:
        reason = "" if _lacks_library(error) else one_line(str(error))
    except NotJudged:
        return ""
    return "" if home.missed else reason


def called(found: Any) -> Callable[..., Any] | None:
    """Return the callable that takes messages, for `inspect.signature`, or None if only an instance has it.

    Args:
        found: function, or class with the method `process`.
    """
    if not inspect.isclass(found):
        return found if callable(found) else None
    method = inspect.getattr_static(found, "process", None)
    if isinstance(method, staticmethod | classmethod):
        bound: Callable[..., Any] = getattr(found, "process")  # noqa: B009   mypy does not know the attribute
        return bound
    return (
        method.__get__(object()) if inspect.isfunction(method) else None
    )  # otherwise created in __init__, or a descriptor


def _lacks_library(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ImportError):
            return True
        error = error.__cause__
    return False
