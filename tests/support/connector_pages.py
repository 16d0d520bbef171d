"""Generate reference pages of connectors from their configuration options; `make docs-connectors` writes them.

A page describes the source or sink (its module docstring), its requirements, how to create it, its fields, and whether
it supports effectively once with its default settings.
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
from magnetar.api.connector import BatchSource
from magnetar.api.connector_config import Field, fields_of, unsupported_by
from magnetar.connectors.register import BUILT_IN, Built, find

DIRECTORY = Path(magnetar.__file__).parent / "docs" / "connectors"
KINDS = ("source", "sink")
_PLACEHOLDERS: dict[type, object] = {str: "x", int: 1, float: 1.0, bool: False, list: ["x"], dict: {}}
EXAMPLES: dict[tuple[str, str], dict[str, Any]] = {
    ("cron", "source"): {"schedule": "*/5 * * * *"},
    ("delta", "sink"): {"tablePath": "/tmp/orders-table"},
    ("elasticsearch", "sink"): {"elasticSearchUrl": "http://localhost:9200"},
    ("file", "source"): {"path": "/tmp/orders-in", "tail": True},
    ("file", "sink"): {"path": "/tmp/orders-out"},
    ("http", "source"): {"port": 10999},
    ("http", "sink"): {"url": "http://localhost:10999"},
    ("iceberg", "sink"): {
        "table": "sales.orders",
        "catalogProperties": {"type": "sql", "uri": "sqlite:////tmp/catalog.db", "warehouse": "file:///tmp/warehouse"},
    },
    ("influxdb", "sink"): {"influxdbUrl": "http://localhost:8086", "database": "shop"},
    ("jdbc", "sink"): {"jdbcUrl": "jdbc:sqlite:/tmp/shop.db", "tableName": "orders"},
    ("jdbc-poll", "source"): {
        "jdbcUrl": "jdbc:sqlite:/tmp/shop.db", "tableName": "orders", "incrementingColumn": "id"
    },
    ("kafka", "source"): {"bootstrapServers": "localhost:9092", "topic": "orders", "groupId": "magnetar"},
    ("kafka", "sink"): {"bootstrapServers": "localhost:9092", "topic": "orders"},
    ("mongodb", "sink"): {"mongoUri": "mongodb://localhost:27017", "database": "shop", "collection": "orders"},
    ("mqtt", "source"): {"serverHost": "localhost", "topics": ["orders/#"]},
    ("mqtt", "sink"): {"serverHost": "localhost", "topic": "orders/{key}"},
    ("nats", "source"): {"url": "nats://localhost:4222", "subject": "orders.>"},
    ("nats", "sink"): {"url": "nats://localhost:4222", "subject": "orders.{key}"},
    ("opensearch", "sink"): {"elasticSearchUrl": "http://localhost:9200"},
    ("postgres-cdc", "source"): {
        "database.hostname": "localhost", "database.dbname": "shop", "database.user": "replicator",
        "database.password": "secret",
    },
    ("pulsar", "source"): {"serviceUrl": "pulsar://other.example:6650", "topics": ["orders"]},
    ("pulsar", "sink"): {"serviceUrl": "pulsar://other.example:6650", "topic": "orders"},
    ("rabbitmq", "source"): {"host": "localhost", "queueName": "orders"},
    ("rabbitmq", "sink"): {"host": "localhost", "exchangeName": "orders"},
    ("redis", "sink"): {"redisHosts": "localhost:6379"},
    ("redis-streams", "source"): {"redisHosts": "localhost:6379", "streams": ["orders"]},
    ("s3", "source"): {"path": "file:///tmp/orders-in"},
    ("s3", "sink"): {"path": "s3://bucket/orders/", "endpoint": "http://localhost:9000"},
    ("websocket", "source"): {"url": "ws://localhost:8765/orders"},
}  # fmt: skip
"""Values in the example of a connector's page, by name and kind; secret fields are shown as secrets.
`test_reference_pages.py` runs every command, so values must be valid. The server may be unreachable."""
DIRECTORIES = {("file", "source"): "/tmp/orders-in", ("s3", "source"): "/tmp/orders-in"}
"""Directories that must exist before the command runs."""
DISCOVERY = {"discoveryTriggererClassName": "cron", "discoveryTriggererConfig": {"__CRON__": "0 * * * * *"}}
_MADE = "<!-- Made by `make docs-connectors` from the options of the connector; change those. -->\n"


def pages() -> dict[str, str]:
    """Return all pages by file name."""
    found = {f"{name}.md": page(name, built) for name, built in sorted(BUILT_IN.items())}
    return {"README.md": index(), **found}


def index() -> str:
    """Return the list of all connectors as a page."""
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
    """Return the page of a connector."""
    parts = [_MADE, f"# {name}\n"]
    if built.aliases:
        parts.append(f"Other names: {', '.join(f'`{alias}`' for alias in built.aliases)}.\n")
    if built.extra:
        parts.append(f"Requires additional libraries: `pip install 'magnetar[{built.extra}]'`.\n")
    if built.unverified:
        parts.append(f"**Not verified** against a real server: {built.unverified}.\n")
    for kind in KINDS:
        if getattr(built, kind):
            parts += section(name, kind)
    return "\n".join(parts)


def section(name: str, kind: str) -> Iterator[str]:
    """Return the section of a source or sink."""
    connector = find(kind, name)
    yield f"## {kind.capitalize()}\n"
    yield _prose(_summary(name, kind)) + "\n"
    module = inspect.getdoc(sys.modules[connector.__module__]) or ""
    if more := module.partition("\n")[2].strip():
        yield _prose(more) + "\n"
    reason = _exact(name, kind)
    yield f"Effectively once: {f'no; {reason}' if reason else 'yes'}.\n"
    fields = fields_of(connector.config)
    if is_batch := issubclass(connector, BatchSource):
        yield (
            "It is a batch source: `--batch-source-config` is required and says when it looks for new tasks. In the\n"
            "example that is the beginning of each minute; `__CRON__` has the fields second, minute, hour, day of the\n"
            'month, month and weekday. With `{"discoveryTriggererClassName": "immediate"}` it looks once: when it is\n'
            "created, updated or started.\n"
        )
    yield "```sh"
    yield _example(name, kind, fields, is_batch=is_batch)
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


def _example(name: str, kind: str, fields: tuple[Field, ...], *, is_batch: bool) -> str:
    values = EXAMPLES.get((name, kind), {})
    secret = {field.key for field in fields if field.secret}
    lines = [f"magnetar {kind}s create --{kind}-type {name} --name {example_name(name, kind)}"]
    lines.append("    --destination-topic-name my-topic" if kind == "source" else "    --inputs my-topic")
    for flag, given in (
        (f"--{kind}-config", {key: value for key, value in values.items() if key not in secret}),
        ("--batch-source-config", DISCOVERY if is_batch else {}),
        ("--secrets", {key: _secret(value) for key, value in values.items() if key in secret}),
    ):
        if given:
            lines.append(f"    {flag} '{json.dumps(given, ensure_ascii=False)}'")
    made = f"mkdir -p {DIRECTORIES[name, kind]}\n" if (name, kind) in DIRECTORIES else ""
    return made + " \\\n".join(lines)


def _secret(value: Any) -> str:
    """Return a secret as a user sets it: a string, which contains JSON if the field is an object."""
    return value if isinstance(value, str) else json.dumps(value)


def example_name(name: str, kind: str) -> str:
    """Return the example's name of a source or sink, which includes the kind because sources and sinks share names."""
    return f"{name}-{kind}"


def _row(field: Field) -> str:
    names = ", ".join(f"`{key}`" for key in (field.key, *(one for one in field.aliases if one != field.name)))
    kind = " or ".join(f"`{choice}`" if choice else "empty" for choice in field.choices) or field.type.__name__
    kind += ", secret" if field.secret else ""
    default = "required" if field.is_required else f"`{json.dumps(field.default, ensure_ascii=False)}`"
    return f"| {names} | {_cell(kind)} | {_cell(default)} | {_cell(field.help)} |"


def _exact(name: str, kind: str) -> str:
    """Return why a connector cannot be effectively once with its default settings, or an empty string."""
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
    """Convert a docstring to Markdown: single backticks, and quoted sources as plain text."""
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|").replace("\n", " ").removesuffix(".")


def write() -> None:
    """Write all pages, and remove pages of removed connectors."""
    DIRECTORY.mkdir(exist_ok=True)
    made = pages()
    for file in DIRECTORY.glob("*.md"):
        if file.name not in made:
            file.unlink()
    for file_name, text in made.items():
        (DIRECTORY / file_name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
