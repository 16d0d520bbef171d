"""REST client for commands: single calls that return JSON or text, with one-line errors."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from ..web.client import (
    Answer,
    AnswerTimeout,
    Form,
    NoAnswer,
    NotHttp,
    NoTls,
    Parts,
    Unreachable,
    request,
    segment,
    stream,
    with_query,
)
from ..web.deployments import NOTICE_HEADER, VERSION_HEADER
from ..wire.printable import printable
from .failure import Failure
from .output import Table, key_value_table, output_option, print_json, print_table, show_done, wants_table
from .settings import Settings, current
from .suggestions import with_suggestion

if TYPE_CHECKING:
    from ..security.client_credentials import ClientCredentials

__all__ = ["Admin", "Answer", "Parts", "segment"]

REQUEST_TIMEOUT_S = 300.0
"""Request timeout in seconds; the same as in Pulsar's own tool."""
READ_TIMEOUT_S = 30.0
"""Timeout in seconds of read-only requests, which are fast on every server."""
CONNECT_TIMEOUT_S = 5.0


class Admin:
    """The REST interface of a broker or worker."""

    def __init__(
        self, base_url: str, timeout_s: float = REQUEST_TIMEOUT_S, credentials: ClientCredentials | None = None
    ) -> None:
        self.base_url = base_url
        self._timeout_s = timeout_s
        self._credentials = credentials

    def get(self, path: str, **params: Any) -> Any:
        """GET a resource and return JSON or text, or None for an empty response."""
        return self.call("GET", path, params=params)

    def put(self, path: str, body: Any = None, **params: Any) -> Any:
        """PUT an optional JSON body."""
        return self.call("PUT", path, body=body, params=params)

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        """POST an optional JSON body."""
        return self.call("POST", path, body=body, params=params)

    def delete(self, path: str, **params: Any) -> Any:
        """DELETE a resource."""
        return self.call("DELETE", path, params=params)

    def send_parts(self, method: str, path: str, parts: Parts) -> Any:
        """Send a multipart form, for example to create a function."""
        return _content(self._send(method, path, Form(parts)))

    def deploy(self, method: str, path: str, parts: Parts | None, **params: Any) -> str | None:
        """Send a deployment request and return the new version, or None if the worker does not report it.

        A notice in the response is printed to standard error.
        """
        answer = self._send(method, path, None if parts is None else Form(parts), params)
        if notice := answer.headers.get(NOTICE_HEADER.lower()):
            click.echo(printable(notice), err=True)
        return answer.headers.get(VERSION_HEADER.lower())

    def send_parts_raw(self, method: str, path: str, parts: Parts) -> Answer:
        """Send a multipart form and return the complete response, including headers."""
        return self._send(method, path, Form(parts))

    def call(self, method: str, path: str, *, body: Any = None, params: Mapping[str, Any] | None = None) -> Any:
        """Send a request with an optional JSON body and return the response's content.

        Raises:
            Failure: the server does not respond, or the response is an error.
        """
        return _content(self._send(method, path, body, params))

    def raw(self, method: str, path: str) -> Answer:
        """Send a request without a body and return the complete response, including headers."""
        return self._send(method, path)

    @contextmanager
    def stream(self, path: str, params: Mapping[str, Any]) -> Iterator[Iterator[bytes]]:
        """Open a streaming response, without a limit on its duration."""
        with (
            self._failures(),
            stream(
                with_query(self.base_url + path, params),
                connect_timeout_s=CONNECT_TIMEOUT_S,
                credentials=self._credentials,
            ) as (answer, pieces),
        ):
            self._look_at(answer, path)
            yield pieces

    def _send(self, method: str, path: str, body: Any = None, params: Mapping[str, Any] | None = None) -> Answer:
        timeout_s = min(self._timeout_s, READ_TIMEOUT_S) if method == "GET" else self._timeout_s
        with self._failures(timeout_s):
            answer = request(
                method, with_query(self.base_url + path, params), body=body, timeout_s=timeout_s,
                connect_timeout_s=CONNECT_TIMEOUT_S, credentials=self._credentials,
            )  # fmt: skip
        return self._look_at(answer, path)

    def _look_at(self, answer: Answer, path: str) -> Answer:
        """Return a successful response; raise for an error, with a suggestion for a mistyped name."""
        if answer.status == 401 and "html" in answer.headers.get("content-type", ""):
            raise Failure(self._refused(), 401)  # rejected before the path was examined
        try:
            return _checked(answer)
        except Failure as failure:
            raise with_suggestion(failure, path, self._listed) from None

    def _refused(self) -> str:
        if self._credentials is None or self._credentials.authentication is None:
            return f"{self.base_url} requires authentication (HTTP 401): use --auth-plugin and --auth-params"
        return (
            f"{self.base_url} rejected the credentials (HTTP 401, method {self._credentials.method}); they may have"
            " expired or belong to another cluster"
        )

    def _listed(self, path: str) -> Any:
        """Return a list that is only requested to suggest a name."""
        with self._failures():
            answer = request(
                "GET", self.base_url + path, timeout_s=2.0, connect_timeout_s=2.0, credentials=self._credentials
            )
            return _content(_checked(answer))

    @contextmanager
    def _failures(self, timeout_s: float = READ_TIMEOUT_S) -> Iterator[None]:
        """Convert network errors to a Failure with a remedy."""
        try:
            yield
        except NoTls as exc:
            raise Failure(exc.reason) from exc
        except Unreachable as exc:
            raise Failure(
                f"cannot reach {self.base_url}: start a server with `magnetar standalone` or use --admin-url"
            ) from exc
        except AnswerTimeout as exc:
            raise Failure(f"{self.base_url} did not respond within {timeout_s:g} s: {_LOOK}") from exc
        except NotHttp as exc:
            raise Failure(f"{self.base_url} did not respond like an HTTP server: {_LOOK} ({exc.reason})") from exc
        except NoAnswer as exc:
            raise Failure(f"request to {self.base_url} failed: {exc.reason}; check the server's log") from exc


_LOOK = "check that --admin-url is a web port (8080 by default), or check the server's log"


def admin_of(settings: Settings, timeout_s: float = REQUEST_TIMEOUT_S) -> Admin:
    """Return the REST client for a call's settings, with their credentials."""
    return Admin(settings.admin_url, timeout_s, settings.credentials)


def _checked(answer: Answer) -> Answer:
    if not answer.is_success:
        raise Failure(f"{answer.reason} (HTTP {answer.status})", answer.status)
    return answer


def _content(answer: Answer) -> Any:
    if not answer.content:
        return None
    try:
        return json.loads(answer.content)
    except ValueError:
        return answer.text


class Record(NamedTuple):
    """A JSON value to show, as a table on a terminal.

    Attributes:
        value: the JSON value.
        table: converts it to a table; None to print JSON.
        empty: message on standard error if the table has no rows; replaces the table on a terminal.
    """

    value: Any
    table: Callable[[Any], Table] | None = None
    empty: str = ""


def as_fields(value: Any) -> Record:
    """Return a value to show, as a table of its fields on a terminal."""
    return Record(value, key_value_table)


class Setting(NamedTuple):
    """A JSON value that may be missing; if so, nothing is printed on a terminal, and null elsewhere."""

    value: Any


class Line(NamedTuple):
    """A line of text for users; JSON output contains ``record`` instead."""

    text: str
    record: Any


class Names(NamedTuple):
    """Names to show, one per line.

    Attributes:
        names: the names.
        empty: message on standard error if the list is empty; JSON output is then an empty list.
    """

    names: Sequence[str]
    empty: str = "nothing to list"


Shown: TypeAlias = str | Record | Setting | Line | Names | None
"""Result of a command: a message, a value, or names; None if the command has already printed its output."""


def rest_command(
    group: click.Group | None, name: str | None = None, *, has_output: bool = True, **attributes: Any
) -> Callable[[Callable[..., Shown]], click.Command]:
    """Turn a function into a command with the flag ``-o``; it receives the REST client and the parameters.

    Args:
        group: the command's group; None if its module adds it elsewhere.
        name: name of the command; None for the function's name.
        has_output: False for a command whose own ``-o`` has another meaning.
        attributes: attributes of the click command, whose help is the docstring.
    """

    def make(run: Callable[..., Shown]) -> click.Command:
        @click.pass_context
        def call(ctx: click.Context, /, **arguments: Any) -> None:
            _show(ctx, run(admin_of(current(ctx)), **arguments))

        function: Any = output_option(call) if has_output else call
        function.__click_params__ = [*getattr(function, "__click_params__", []), *getattr(run, "__click_params__", [])]
        attributes.setdefault("help", inspect.getdoc(run))
        command = click.command(name or run.__name__.replace("_", "-"), click.Command, **attributes)(function)
        if group is not None:
            group.add_command(command)
        return command

    return make


class Call(NamedTuple):
    """A command that makes one REST call.

    Attributes:
        name: name of the command.
        method: request method.
        path: path relative to the subject's.
        help: one-line help.
        done: message to print instead of the response, with placeholders for the subject's texts.
        show: converts the response to the output.
        empty: message for an empty list of names, with placeholders for the subject's texts.
        flags: flags sent as query parameters of the same names, if set.
        hidden: whether to hide it in the group's help.
        refusals: replacements for error messages, by a substring of them.
    """

    name: str
    method: str
    path: str
    help: str
    done: str = ""
    show: Callable[[Any], Shown] = Record
    empty: str = ""
    flags: Sequence[click.Option] = ()
    hidden: bool = False
    refusals: Mapping[str, str] = MappingProxyType({})


def _twice(state: str, what_next: str) -> Mapping[str, str]:
    text = f"nothing to do: already {state}, or no such instance; {what_next}"
    return MappingProxyType({"Operation not permitted": text})


STARTED = _twice("started", "use `restart` to restart it, or `status` to show its state")
STOPPED = _twice("stopped", "use `start` to start it")
"""`Call.refusals` for the commands `start` and `stop`."""


class Subject(NamedTuple):
    """The kind of object that commands act on.

    Attributes:
        path: returns the object's REST path from the values of the parameters.
        parameters: adds the arguments and flags for the object's name to a command.
        texts: returns the placeholder values for `Call.done`, from the same values.
    """

    path: Callable[..., str]
    parameters: Sequence[Callable[[Callable[..., Any]], Callable[..., Any]]] = ()
    texts: Callable[..., dict[str, Any]] = dict

    def commands(self, group: click.Group | None, *calls: Call) -> tuple[click.Command, ...]:
        """Create a command for each call, and add it to the group, if any."""
        return tuple(self._command(group, call) for call in calls)

    def _command(self, group: click.Group | None, call: Call) -> click.Command:
        def run(rest: Admin, /, **given: Any) -> Shown:
            query = {flag.name: given.pop(flag.name) or None for flag in call.flags}
            try:
                answer = rest.call(call.method, self.path(**given) + call.path, params=query)
            except Failure as failure:
                for text, said in call.refusals.items():
                    if text in failure.message:
                        raise Failure(said, failure.status) from None
                raise
            if call.done:
                return call.done.format(**self.texts(**given))
            shown = call.show(answer)
            if isinstance(shown, Names) and call.empty:
                return shown._replace(empty=call.empty.format(**self.texts(**given)))
            return shown

        function: Any = run
        function.__click_params__ = [*reversed(call.flags)]
        for parameter in reversed(self.parameters):
            function = parameter(function)
        return rest_command(group, call.name, help=call.help, hidden=call.hidden)(function)


def _show(ctx: click.Context, shown: Shown) -> None:
    is_json = current(ctx).output == "json"
    match shown:
        case None:
            pass
        case str():
            show_done(ctx, shown)
        case Record(value, table, empty) if table is not None and wants_table(ctx):
            if not value and empty:
                click.echo(empty, err=True)
            else:
                print_table(table(value))
        case Record(value, _, empty):
            print_json(value)
            if empty and not value and not is_json:
                click.echo(empty, err=True)
        case Setting(value):
            if value is not None or is_json:
                print_json(value)
        case Line(text, record):
            if is_json:
                print_json(record)
            else:
                click.echo(text)
        case Names(names) if is_json:
            print_json(list(names))
        case Names(names, empty) if not names:
            click.echo(printable(empty), err=True)
        case Names(names):
            for name in names:
                click.echo(printable(name) if sys.stdout.isatty() else name)
