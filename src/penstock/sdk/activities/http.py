"""The built-in activity `http`: one request, its answer as data.

Answers from 400 up are failures; those that another attempt cannot mend (4xx but 408, 425, 429) are final. The
task's idempotency key travels with the request, so that the other side can tell a second attempt from a second wish.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

import msgspec

from penstock.errors import Fail, PenstockError
from penstock.model.payload import PAYLOAD_BYTES_MAX
from penstock.sdk.arguments import BadArguments
from penstock.sdk.attempt import CURRENT

if TYPE_CHECKING:
    import httpx

TIMEOUT_SECONDS = 30.0
REDIRECTS_MAX = 5
ERROR_BODY_BYTES_MAX = 4096
RETRIED = frozenset({408, 425, 429})
_METHOD = re.compile(r"[A-Z]{1,20}")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


class HttpFailed(PenstockError):
    """A request that may succeed when it is made again."""

    def __init__(self, message: str, *, code: str, details: dict[str, Any]) -> None:
        super().__init__(message)
        self.code, self.details = code, details


class Http:
    """Its client is made at the first request and kept for all others."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._making = asyncio.Lock()

    async def __call__(
        self,
        method: str,
        url: str,
        headers: dict[str, Any] | None = None,
        body: Any = None,
        timeout: float | None = None,  # noqa: ASYNC109  (the activity's parameter, in documents too)
        **more: Any,
    ) -> dict[str, Any]:
        """`headers.NAME` among the arguments is one header more, so that it can be a secret of its own."""
        method, seconds = _checked(method, url, timeout)
        sent = _headers(headers, more)
        client = self._client or await self._made()
        import httpx

        shown = _shown(url)
        details = {"method": method, "url": shown}
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(client, method, url, sent, body)
        except TimeoutError as error:
            message = f"{method} {shown} was not answered within {seconds:g} s"
            raise HttpFailed(message, code="http-timeout", details=details) from error
        except httpx.TooManyRedirects as error:
            message = f"{method} {shown} was redirected more than {REDIRECTS_MAX} times"
            raise Fail(message, code="http-redirects", details=details) from error
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise BadArguments(f"'url', or where it redirects to: {error}", "url") from error
        except httpx.HTTPError as error:
            message = f"{method} {shown}: {str(error) or type(error).__name__}"
            raise HttpFailed(message, code="http-unreachable", details=details) from error

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _exchange(
        self, client: httpx.AsyncClient, method: str, url: str, headers: dict[str, str], body: Any
    ) -> dict[str, Any]:
        content = None
        if isinstance(body, str):
            content = body.encode()
        elif body is not None:
            content = msgspec.json.encode(body)
            headers.setdefault("content-type", "application/json")
        async with client.stream(method, url, headers=headers, content=content) as response:
            failed = response.status_code >= 400
            raw, whole = await _read(
                response, ERROR_BODY_BYTES_MAX if failed else PAYLOAD_BYTES_MAX
            )
            if failed:
                raise _refused(method, response, raw)
            if not whole:
                message = f"the answer to {method} {_shown(url)} is larger than {PAYLOAD_BYTES_MAX:,} bytes"
                raise Fail(
                    message, code="payload-too-large", details={"status": response.status_code}
                )
            return {
                "status": response.status_code,
                "headers": {name.lower(): value for name, value in response.headers.items()},
                "body": _body(response, raw),
                "url": str(response.url),
            }

    async def _made(self) -> httpx.AsyncClient:
        async with self._making:
            if self._client is None:
                # In a thread: importing httpx and reading certificates would hold up the loop.
                self._client = await asyncio.to_thread(_client)
        return self._client


def _client() -> httpx.AsyncClient:
    httpx = importlib.import_module("httpx")
    # No cookie of one run may reach another.
    cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    return httpx.AsyncClient(
        timeout=None, follow_redirects=True, max_redirects=REDIRECTS_MAX, cookies=cookies
    )


def _checked(method: Any, url: Any, seconds: Any) -> tuple[str, float]:
    if not isinstance(method, str) or not _METHOD.fullmatch(method.upper()):
        raise BadArguments(f"'method' must be a word like GET, not {method!r}", "method")
    if not isinstance(url, str) or not url.lower().startswith(("http://", "https://")):
        raise BadArguments(f"'url' must begin with http:// or https://, not {url!r}", "url")
    if seconds is None:
        return method.upper(), TIMEOUT_SECONDS
    if type(seconds) not in (int, float) or not seconds > 0:
        raise BadArguments(f"'timeout' must be more than 0 seconds, not {seconds!r}", "timeout")
    return method.upper(), float(seconds)


def _shown(url: str) -> str:
    """Without password and query, which may hold what must not be kept in a history."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return "an address that cannot be read"


def _headers(given: Any, more: dict[str, Any]) -> dict[str, str]:
    if given is not None and not isinstance(given, dict):
        raise BadArguments(f"'headers' must be an object, not {given!r}", "headers")
    single = {name.removeprefix("headers."): value for name, value in more.items()}
    for name in more:
        if not name.startswith("headers."):
            raise BadArguments(f"no parameter is named '{name}'", name)
    every = {**cast("dict[str, Any]", given or {}), **single}
    headers = {name.lower(): str(value) for name, value in every.items() if value is not None}
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not value.isprintable():
            raise BadArguments(
                f"the header {name!r} has characters that no header may have", "headers"
            )
    attempt = CURRENT.get()
    if attempt is not None:
        headers.setdefault("idempotency-key", attempt.idempotency_key)
    return headers


async def _read(response: httpx.Response, limit: int) -> tuple[bytes, bool]:
    """At most so many bytes, and whether that is all."""
    parts = bytearray()
    async for part in response.aiter_bytes():
        parts += part
        if len(parts) > limit:
            return bytes(parts[:limit]), False
    return bytes(parts), True


def _body(response: httpx.Response, raw: bytes) -> Any:
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        if not raw.strip():
            return None
        try:
            return msgspec.json.decode(raw)
        except msgspec.DecodeError:
            pass  # it says so and is not; the text is still worth having
    try:
        return raw.decode(response.charset_encoding or "utf-8", "replace")
    except LookupError:
        return raw.decode("utf-8", "replace")


def _refused(method: str, response: httpx.Response, raw: bytes) -> PenstockError:
    status = response.status_code
    shown = _shown(str(response.url))
    message = f"{method} {shown} was answered {status} {response.reason_phrase}".rstrip()
    details: dict[str, Any] = {"status": status, "body": _body(response, raw)}
    after = response.headers.get("retry-after")
    if after is not None:
        details["retry_after"] = after
    code = "http-4xx" if status < 500 else "http-5xx"
    if status < 500 and status not in RETRIED:
        return Fail(message, code=code, details=details)
    return HttpFailed(message, code=code, details=details)
