"""Reference pages of connectors, made from the options of their configurations; `make docs-connectors` writes them.

A page says what the source or the sink does (the documentation of its module), what it needs, how it is created, its
fields, and whether it can be effectively once with its default settings.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import magnetar
from magnetar.api.connector_config import Field, fields_of, unsupported_by
from magnetar.connectors.register import BUILT_IN, Built, find

DIRECTORY = Path(magnetar.__file__).parent / "docs" / "connectors"
KINDS = ("source", "sink")
_PLACEHOLDERS: dict[type, object] = {str: "x", int: 1, float: 1.0, bool: False, list: ["x"], dict: {}}
_MADE = "<!-- Made by `make docs-connectors` from the options of the connector; change those. -->\n"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    found = {f"{name}.md": page(name, built) for name, built in sorted(BUILT_IN.items())}
    return {"README.md": index(), **found}


def index() -> str:
    """The list of all connectors."""
    rows = []
    for name, built in sorted(BUILT_IN.items()):
        kinds = " and ".join(kind for kind in KINDS if getattr(built, kind))
        about = "; ".join(_cell(_summary(name, kind)) for kind in KINDS if getattr(built, kind))
        exact = ", ".join(_exact_cell(name, kind) for kind in KINDS if getattr(built, kind))
        needs = f"`magnetar[{built.extra}]`" if built.extra else ""
        rows.append(f"| [{name}]({name}.md) | {kinds} | {about} | {needs} | {exact} | {_cell(built.unverified)} |")
    return "\n".join(
        (
            _MADE, "# Connectors that come with Magnetar\n",
            "What all of them have in common, and how to write one, is in [connectors.md](../connectors.md).\n",
            "*Effectively once*: whether it can be, with its default settings where it depends on them; of a source,"
            " then of a sink.\n*Not verified*: why it was never run against a real server.\n",
            "| connector | kind | what it does | needs | effectively once | not verified |",
            "| --- | --- | --- | --- | --- | --- |", *rows, "",
        )
    )  # fmt: skip


def page(name: str, built: Built) -> str:
    """One page."""
    parts = [_MADE, f"# {name}\n"]
    if built.aliases:
        parts.append(f"Other names: {', '.join(f'`{alias}`' for alias in built.aliases)}.\n")
    if built.extra:
        parts.append(f"It needs further libraries: `pip install 'magnetar[{built.extra}]'`.\n")
    if built.unverified:
        parts.append(f"**Not verified** against a real server: {built.unverified}.\n")
    for kind in KINDS:
        if getattr(built, kind):
            parts += section(name, kind)
    return "\n".join(parts)


def section(name: str, kind: str) -> Iterator[str]:
    """What a page says of a source or a sink."""
    connector = find(kind, name)
    yield f"## {kind.capitalize()}\n"
    yield _prose(_summary(name, kind)) + "\n"
    module = inspect.getdoc(sys.modules[connector.__module__]) or ""
    if more := module.partition("\n")[2].strip():
        yield _prose(more) + "\n"
    reason = _exact(name, kind)
    yield f"Effectively once: {f'no, {reason}' if reason else 'yes'}.\n"
    fields = fields_of(connector.config)
    yield "```"
    yield _example(name, kind, fields)
    yield "```\n"
    if fields:
        yield "| field | type | default | meaning |"
        yield "| --- | --- | --- | --- |"
        yield from map(_row, fields)
        yield ""
    if refusals := unsupported_by(connector.config):
        yield "Keys of Pulsar's connector that have no field, and what they can be:\n"
        yield "| key | may be | why nothing else |"
        yield "| --- | --- | --- |"
        for key, refusal in refusals.items():
            allowed = " or ".join(f"`{json.dumps(value)}`" for value in refusal.allowed)
            yield f"| `{key}` | {allowed} | {_cell(refusal.reason)} |"
        yield ""


def _example(name: str, kind: str, fields: tuple[Field, ...]) -> str:
    required = {field.key: _PLACEHOLDERS[field.type] if field.type is not str else "…" for field in fields
                if field.is_required and not field.secret}  # fmt: skip
    secret = {field.key: "…" for field in fields if field.is_required and field.secret}
    lines = [f"magnetar {kind}s create --{kind}-type {name} --name my-{name}"]
    lines.append("    --destination-topic-name my-topic" if kind == "source" else "    --inputs my-topic")
    if required:
        lines.append(f"    --{kind}-config '{json.dumps(required, ensure_ascii=False)}'")
    if secret:
        lines.append(f"    --secrets '{json.dumps(secret, ensure_ascii=False)}'")
    return " \\\n".join(lines)


def _row(field: Field) -> str:
    names = ", ".join(f"`{key}`" for key in (field.key, *(one for one in field.aliases if one != field.name)))
    kind = " or ".join(f"`{choice}`" if choice else "empty" for choice in field.choices) or field.type.__name__
    kind += ", secret" if field.secret else ""
    default = "required" if field.is_required else f"`{json.dumps(field.default, ensure_ascii=False)}`"
    return f"| {names} | {_cell(kind)} | {_cell(default)} | {_cell(field.help)} |"


def _exact(name: str, kind: str) -> str:
    """Why a connector cannot be effectively once with its default settings; empty if it can."""
    connector = find(kind, name)
    values: dict[str, Any] = {
        field.name: field.choices[0] if field.choices else _PLACEHOLDERS[field.type]
        for field in fields_of(connector.config)
        if field.is_required
    }
    return connector().not_effectively_once(connector.config(**values))


def _exact_cell(name: str, kind: str) -> str:
    return "no" if _exact(name, kind) else "yes"


def _summary(name: str, kind: str) -> str:
    return (inspect.getdoc(find(kind, name)) or "").partition("\n")[0]


def _prose(text: str) -> str:
    """A docstring as Markdown: double backticks are one, and a quoted source is its text."""
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|").replace("\n", " ").removesuffix(".")


def write() -> None:
    """Write all pages, and remove those of connectors that are gone."""
    DIRECTORY.mkdir(exist_ok=True)
    made = pages()
    for file in DIRECTORY.glob("*.md"):
        if file.name not in made:
            file.unlink()
    for file_name, text in made.items():
        (DIRECTORY / file_name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
