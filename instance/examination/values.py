"""Whether a function's annotations and its config contradict each other: asked of what will convert its messages.

Design: an instance decides by `load_values` what converts messages, so that is called here too, and its refusal is the
answer, word for word. What it takes of a broker, schemas of topics, is asked when topics are opened, later.

The class of a function is not made: its `process` is looked at, as far as the class shows it. Classes of SerDes and
schemas are made, as they can say no more than that they do not work.

Not judged is what may be otherwise where the instance runs:

- A module that the package itself looked for and did not find, though it caught the error. It may have defined
  something else in its place.
- A class of the config in a module that is neither in the package nor here, if the package has a requirements.txt.
- What needs a library that is not installed here, such as fastavro.

A function annotated ``-> None`` may have an output topic: it publishes there itself, by its context.
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
"""Where the code is that imports for others."""


class ExaminedHome(ProcessHome):
    """A package that is loaded for examination, and the modules that its code did not find.

    Attributes:
        root: directory of its modules.
        missed: first module that the package's code tried to import and that was not found; empty if none.
    """

    def __init__(self, package: Path) -> None:
        """Remember the package, and take note of imports from now on."""
        super().__init__(package)
        self.missed = ""
        self.root = module_root(package)
        self._installs = requirements_of(package) is not None
        sys.meta_path.append(_LastFinder(self))

    def import_module(self, name: str) -> ModuleType:
        """Return a module; raises `NotJudged` in the place of ModuleNotFoundError if requirements may have it."""
        try:
            return super().import_module(name)
        except ModuleNotFoundError as error:
            if self._installs and not self.has((error.name or "").partition(".")[0]):
                raise NotJudged from error
            raise

    def has(self, name: str) -> bool:
        """Return whether the package has a module of this name."""
        place = self.root.joinpath(*name.split("."))
        return bool(name) and (place.with_suffix(".py").is_file() or place.is_dir())

    def take_miss(self, name: str, file: str) -> None:
        """Record a failed import of a module by a file of the package."""
        if not self.has(name.partition(".")[0]) and Path(file).is_relative_to(self.root):
            self.missed = self.missed or name


class NotJudged(Exception):
    """What is to be examined is not here."""


class _LastFinder:
    """Is asked for what no other finder has found, and does not find it either."""

    def __init__(self, home: ExaminedHome) -> None:
        self._home = home

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See importlib."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(_HELPERS) and frame.f_back is not None:
            frame = frame.f_back
        self._home.take_miss(fullname, frame.f_code.co_filename)
        return None


class _NoTopics:
    """Stands in the place of topics, which are not opened."""

    def use(self, inputs: dict[str, TopicSchema], output_topic: str, output: TopicSchema | None) -> None:
        """Do nothing."""

    def writer(self, schema: Schema[Any], topic: str, version: bytes) -> Found:
        """Know no schema."""
        return None


def value_settings(details: FunctionDetails) -> bytes:
    """Return what of a function's record concerns its values; the same for records that differ in other things.

    Names of topics are kept only where a refusal would name them.
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
    """Return in one line why a function's messages could not be converted; empty if nothing is known against it.

    Args:
        found: the function, or its class.
        home: it was loaded by.
        class_name: names it.
        settings: of `value_settings`.
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
    """Return what will be called with messages, as `inspect.signature` shows it; None if only an object would show it.

    Args:
        found: a function, or a class with the method `process`.
    """
    if not inspect.isclass(found):
        return found if callable(found) else None
    method = inspect.getattr_static(found, "process", None)
    if isinstance(method, staticmethod | classmethod):
        bound: Callable[..., Any] = getattr(found, "process")  # noqa: B009  a class has it or has not
        return bound
    return method.__get__(object()) if inspect.isfunction(method) else None  # else made in __init__, or a descriptor


def _lacks_library(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ImportError):
            return True
        error = error.__cause__
    return False
