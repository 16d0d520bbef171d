"""Packages by URL, fetched from allowed URLs by the worker that receives the request.

As in Apache Pulsar, no URLs are allowed by default: any client with permission to deploy could otherwise make the
worker read any file on its machine and send requests to any server within reach. Redirects must also lead to allowed
URLs. The package is stored like an upload, and its URL is not fetched again.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import unquote, urljoin, urlsplit

import httpx

from ...errors import PackageError, RequestRefused
from ...metadata.packages import PART_BYTES, PackageStore, Upload
from .package_index import TYPES, PackageIndex, parse_package_url

FETCH_TIMEOUT_S = 20.0
"""Total timeout in seconds for fetching a package, within the thirty seconds of a request."""
REDIRECTS_MAX = 5

_FUNCTION = "Function"
_REDIRECTS = frozenset((301, 302, 303, 307, 308))


@dataclass(frozen=True, slots=True)
class PackageUrls:
    """Fetches packages.

    Attributes:
        packages: receives the fetched packages.
        http: client for other servers.
        index: packages stored under names.
        function_patterns: regular expressions, one of which must match the entire URL of a function's package.
        connector_patterns: regular expressions for the packages of sources and sinks.
    """

    packages: PackageStore
    http: httpx.AsyncClient
    index: PackageIndex
    function_patterns: tuple[str, ...] = ()
    connector_patterns: tuple[str, ...] = ()

    async def fetch(self, url: str, title: str) -> tuple[Upload, str]:
        """Return a package, which the caller must pass to `discard`, and its file name.

        Args:
            url: ``http://…``, ``https://…`` or ``file:///…``, or the name of a package, ``function://t/n/name@version``.
            title: ``Function``, ``Source`` or ``Sink``.

        Raises:
            RequestRefused: 400, the URL is not allowed or does not return a package.
        """
        is_named = url.startswith(tuple(f"{kind}://" for kind in TYPES))
        if not is_named:
            self._check(url, title)
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                if is_named:
                    return await self._of_index(url)
                is_file = urlsplit(url).scheme == "file"
                upload = await (self._of_file(url) if is_file else self._of_server(url, title))
        except TimeoutError:
            raise _refusal(title, url, f"timed out after {FETCH_TIMEOUT_S:g} s") from None
        except (PackageError, OSError, httpx.HTTPError, httpx.InvalidURL) as exc:
            raise _refusal(title, url, str(exc) or type(exc).__name__) from exc
        return upload, unquote(urlsplit(url).path).rpartition("/")[2]

    def _check(self, url: str, title: str) -> None:
        is_function = title == _FUNCTION
        key = "additionalEnabledFunctionsUrlPatterns" if is_function else "additionalEnabledConnectorUrlPatterns"
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        is_known = parts.scheme in ("http", "https") if parts.hostname else parts.scheme == "file"
        # A path with ".." may match a pattern although it leads elsewhere.
        goes_up = ".." in unquote(parts.path).split("/")
        patterns = self.function_patterns if is_function else self.connector_patterns
        if not is_known or goes_up or not any(re.fullmatch(pattern, url) for pattern in patterns):
            raise RequestRefused(
                400,
                "Function Package url is not valid.supported url (http/https/file); the URL must match one of the"
                f" worker's {key} ({', '.join(patterns) or 'none is set'}): change the URL or upload the file as data",
            )

    async def _of_index(self, url: str) -> tuple[Upload, str]:
        record = await self.index.get(parse_package_url(url))
        try:
            path = await self.packages.assemble(record["packageId"])
        except PackageError as exc:
            raise RequestRefused(500, str(exc)) from exc
        return Upload(path, record["packageId"], record["size"]), record["fileName"]

    async def _of_file(self, url: str) -> Upload:
        path = unquote(urlsplit(url).path)
        # Without O_NONBLOCK, opening a named pipe would block the thread until it has a writer.
        number = await asyncio.to_thread(os.open, path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise PackageError(f"{path} is not a regular file")
            return await self.packages.receive(_pieces(number))
        finally:
            os.close(number)

    async def _of_server(self, url: str, title: str) -> Upload:
        place = url
        for _ in range(REDIRECTS_MAX + 1):
            async with self.http.stream(
                "GET", place, follow_redirects=False, headers={"Accept-Encoding": "identity"}, timeout=FETCH_TIMEOUT_S
            ) as response:
                if response.status_code in _REDIRECTS and "location" in response.headers:
                    place = urljoin(place, response.headers["location"])
                    if urlsplit(place).scheme == "file":
                        raise PackageError(f"redirected to {place}")
                    self._check(place, title)
                    continue
                if response.status_code != httpx.codes.OK:
                    raise PackageError(f"HTTP {response.status_code} {response.reason_phrase}")
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise PackageError("the response is compressed although compression was not requested")
                return await self.packages.receive(response.aiter_raw())
        raise PackageError(f"more than {REDIRECTS_MAX} redirects")


async def _pieces(number: int) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(os.read, number, PART_BYTES):
        yield piece


def _refusal(title: str, url: str, reason: str) -> RequestRefused:
    return RequestRefused(400, f'Encountered error "{reason}" when getting {title} package from {url}')
