"""The tables of docs/reference/client-settings.md, made of the dataclasses; run this module to write them."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import magnetar
from magnetar.client import ClientConfig, ConsumerConfig, ProducerConfig
from magnetar.client import config as client_config

PAGE = Path(magnetar.__file__).parent / "docs" / "reference" / "client-settings.md"
CONFIGS: tuple[type[Any], ...] = (ClientConfig, ProducerConfig, ConsumerConfig)
UNITS = {"ms": "milliseconds", "s": "seconds", "bytes": "bytes"}
_ATTRIBUTE = re.compile(r"^(\w+): ", re.MULTILINE)


def meanings(config: type[Any]) -> dict[str, str]:
    """Return the description of each field from a dataclass's docstring, as one line of Markdown."""
    text = inspect.cleandoc((config.__doc__ or "").partition("Attributes:\n")[2])
    parts = _ATTRIBUTE.split(text)[1:]
    return {
        name: " ".join(said.split()).replace("``", "`").replace("|", "\\|")
        for name, said in zip(parts[::2], parts[1::2], strict=True)
    }


def kind(field: Field[Any]) -> str:
    """Return a field's type, choices, or unit, which is the suffix of its name."""
    name, *others = str(field.type).removesuffix(" | None").split(" | ")
    choices = getattr(client_config, name, None)
    if get_origin(choices) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(choices)) + " or a function" * bool(others)
    unit = UNITS.get(field.name.rpartition("_")[2])
    return f"{name}, {unit}" if unit and name in ("int", "float") else f"`{name}`"


def default(field: Field[Any]) -> str:
    """Return the default of a field, as a program would write it."""
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    return f"`{value!r}`" if not isinstance(value, int) or isinstance(value, bool) else f"{value:,}"


def table(config: type[Any]) -> str:
    """Return the rows of a dataclass, between the marks in the page."""
    said = meanings(config)
    rows = [f"| `{one.name}` | {kind(one)} | {default(one)} | {said[one.name]} |" for one in fields(config)]
    name = config.__name__
    head = "| setting | type | default | meaning |\n| --- | --- | --- | --- |"
    return f"<!-- {name} -->\n\n{head}\n" + "\n".join(rows) + f"\n\n<!-- end of {name} -->"


def written(page: str) -> str:
    """Return a page with current tables."""
    for config in CONFIGS:
        name = config.__name__
        marks = re.compile(rf"<!-- {name} -->.*?<!-- end of {name} -->", re.DOTALL)
        made = table(config)
        page, count = marks.subn(made.replace("\\", r"\\"), page)
        assert count == 1, f"{PAGE.name} has no place for the settings of {name}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
