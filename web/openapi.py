"""OpenAPI description of a REST API, generated from its route table, and two pages that display it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from inspect import getdoc
from typing import Any

from starlette.responses import HTMLResponse

from .answers import as_json
from .call import KINDS, Query, query_of
from .router import Handler, Routes

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_ANY_HANDLER = ("answer", "handle", "get", "set", "remove")
"""Handler names that do not describe the request, for which the path is used instead."""
_OK = {"description": "Successful Response", "content": {"application/json": {"schema": {}}}}
_ERROR = {
    "description": "Error",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
_SCHEMAS = {
    "Error": {"title": "Error", "type": "object", "required": ["reason"], "properties": {"reason": {"type": "string"}}}
}
# Scripts are pinned to an exact version and hash, so that the browser runs nothing else. The content security policy
# allows nothing else either, except the inline script that opens the page.
_SWAGGER = """<!DOCTYPE html>
<html><head><title>{title}</title><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5.35.0/swagger-ui.css" crossorigin="anonymous"
integrity="sha384-WlYgdmXYOOBWL5apwjDEZwN+U3HmXSSu5R6V5aGxEcf7z+KuRNwBhoxKVN1i3D5I"></head>
<body><div id="swagger-ui"></div>
<script src="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5.35.0/swagger-ui-bundle.js" crossorigin="anonymous"
integrity="sha384-gjRm0bEPMeTmMh5jT2cHccIwCUZSTd8YC+j0d0sXw0MdGEfScduGpSyF3ZSSLkX9"></script>
<script>{script}</script></body></html>
"""
_OPEN_SWAGGER = 'SwaggerUIBundle({url: "/openapi.json", dom_id: "#swagger-ui", deepLinking: true})'
_REDOC = """<!DOCTYPE html>
<html><head><title>{title}</title><meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body style="margin: 0"><redoc spec-url="/openapi.json"></redoc>
<script src="https://cdn.jsdelivr.net/npm/redoc@2.5.2/bundles/redoc.standalone.js" crossorigin="anonymous"
integrity="sha384-70P5pmIdaQdVbxvjhrcTDv1uKcKqalZ3OHi7S2J+uzDl0PW8dO6L+pHOpm9EEjGJ"></script></body></html>
"""
_CDN = "https://cdn.jsdelivr.net"


def describe(
    title: str, version: str, routes: Routes[Any], words: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """Return the OpenAPI document for a route table, from the handlers' docstrings and `takes`.

    Args:
        title: API title.
        version: API version.
        routes: route table. The first handler for each path and method is used.
        words: allowed values of restricted path parameters, by name.
    """
    paths: dict[str, dict[str, Any]] = {}
    for method, path, handler in routes:
        shown = _PARAMETER.sub(r"{\1}", path)
        paths.setdefault(shown, {}).setdefault(method.lower(), _operation(method, path, handler, words or {}))
    info = {"title": title, "version": version}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": _SCHEMAS}}


def _operation(method: str, path: str, handler: Handler[Any], words: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    name = getattr(handler, "__name__", "")
    if not name.isidentifier() or name in _ANY_HANDLER:
        name = f"{method.lower()} {_PARAMETER.sub('', path).rstrip('/').rpartition('/')[2]}"
    operation: dict[str, Any] = {}
    if path.startswith("/admin/"):
        area = path.split("/")[3]
        operation["tags"] = ["topics" if area.startswith("{") else area]
    operation["summary"] = name.replace("_", " ").strip().title()
    if text := getdoc(handler):
        operation["description"] = text
    operation["operationId"] = re.sub(r"\W", "_", f"{name}{path}_{method.lower()}").lstrip("_")
    parameters: list[dict[str, Any]] = []
    for each in _PARAMETER.findall(path):
        schema = {"type": "string", "minLength": 1} | ({"enum": list(words[each])} if each in words else {})
        parameters.append({"name": each, "in": "path", "required": True, "schema": schema})
    parameters += [_query_parameter(each) for each in query_of(handler)]
    if parameters:
        operation["parameters"] = parameters
    if method in ("POST", "PUT"):
        operation["requestBody"] = {"content": {"application/json": {"schema": {}}}}
    operation["responses"] = {"200": _OK, "default": _ERROR}
    return operation


def _query_parameter(query: Query[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": KINDS[query.kind]}
    if query.default is not None:
        schema["default"] = query.default
    return {"name": query.name, "in": "query", "required": query.default is None, "schema": schema}


def pages(
    title: str, version: str, routes: Routes[Any], words: Mapping[str, Sequence[str]] | None = None
) -> Routes[Any]:
    """Return the routes of the description and its pages, which the description omits. Arguments as for `describe`."""

    @cache
    def document() -> dict[str, Any]:
        return describe(title, version, routes, words)  # generated on request, to keep server startup fast

    def swagger(_: Any) -> HTMLResponse:
        return _page(_SWAGGER.format(title=title, script=_OPEN_SWAGGER), _OPEN_SWAGGER)

    return (
        ("GET", "/openapi.json", lambda _: as_json(document())),
        ("GET", "/docs", swagger),
        ("GET", "/redoc", lambda _: _page(_REDOC.format(title=title))),
    )


def _page(html: str, script: str = "") -> HTMLResponse:
    """Return a page that loads scripts from the network and has one inline script."""
    own = f" 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" if script else ""
    policy = (
        f"default-src 'none'; script-src {_CDN}{own}; style-src {_CDN} 'unsafe-inline'; img-src 'self' data:;"
        " connect-src 'self'; worker-src blob:"
    )
    return HTMLResponse(html, headers={"content-security-policy": policy})
