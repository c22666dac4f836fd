"""The activity `http`, against a real server on the loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.sdk.activities import http
from unit.sdk.desk import Desk

MakeDesk = Callable[..., Desk]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    """Answers by path; remembers what it was asked."""

    port: int = 0
    requests: list[Request] = field(default_factory=list[Request])
    connections: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = {
                    name.lower(): value
                    for name, _, value in (line.partition(": ") for line in head[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(Request(method, path, headers, body))
                await self.answer(path, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        name, _, argument = path.partition("?")[0].strip("/").partition("/")
        status, kind, body, more = 200, "application/json", b'{"ok": true}', ""
        match name:
            case "text":
                kind, body = "text/plain; charset=latin-1", "gr\xfcn".encode("latin-1")
            case "vendor":
                kind = "application/problem+json"
            case "broken":
                body = b"{not json"
            case "empty":
                body = b""
            case "odd-charset":
                kind, body = "text/plain; charset=nonsense", b"text"
            case "status":
                status, body = int(argument), json.dumps({"why": "x" * 10_000}).encode()
                more = "Retry-After: 7\r\n"
            case "large":
                kind, body = "text/plain", b"x" * ((1 << 20) + 1)
            case "redirect":
                left = int(argument)
                status, more = 302, f"Location: /{f'redirect/{left - 1}' if left else 'text'}\r\n"
            case "elsewhere":
                status, more = 302, "Location: ftp://127.0.0.1/file\r\n"
            case "cookie":
                more = "Set-Cookie: session=1\r\n"
            case "hang":
                await asyncio.sleep(30)
            case "drop":
                writer.close()
                raise ConnectionResetError
            case _:
                pass
        head = f"HTTP/1.1 {status} Because\r\nContent-Type: {kind}\r\nX-Mixed-Case: Yes\r\n{more}"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Server()
    serving: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        await server.serve(reader, writer)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    yield server
    listening.close()
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


@pytest.fixture
def web(desk: MakeDesk) -> Desk:
    return desk()


async def test_an_answer_is_data(web: Desk, server: Server) -> None:
    result = await web.value("http", {"method": "get", "url": server.url("/json?a=1")})

    assert (result["status"], result["body"], result["url"]) == (
        200,
        {"ok": True},
        server.url("/json?a=1"),
    )
    assert result["headers"]["x-mixed-case"] == "Yes"
    assert server.requests[0].method == "GET"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/text", "grün"),
        ("/vendor", {"ok": True}),
        ("/broken", "{not json"),
        ("/empty", None),
        ("/odd-charset", "text"),
    ],
)
async def test_a_body_is_what_its_content_type_says(
    web: Desk, server: Server, path: str, body: Any
) -> None:
    assert (await web.value("http", {"method": "GET", "url": server.url(path)}))["body"] == body


async def test_what_is_sent_is_what_was_given(web: Desk, server: Server) -> None:
    url = server.url("/")
    await web.run("http", {"method": "POST", "url": url, "body": {"a": [1]}}, key="k", attempt=3)
    await web.run(
        "http",
        {
            "method": "PUT",
            "url": url,
            "body": "text",
            "headers": {"Idempotency-Key": "own", "X-N": 5},
        },
    )
    await web.run("http", {"method": "DELETE", "url": url})

    first, second, third = server.requests
    assert (first.body, first.headers["content-type"]) == (b'{"a":[1]}', "application/json")
    assert first.headers["idempotency-key"] == "run/1/k"
    assert (second.body, second.headers["idempotency-key"], second.headers["x-n"]) == (
        b"text",
        "own",
        "5",
    )
    assert (third.method, third.body) == ("DELETE", b"")


async def test_a_header_may_be_a_secret(desk: MakeDesk, server: Server) -> None:
    web = desk(secrets={"API_KEY": "Bearer s3cret"})
    secrets = (("headers.Authorization", "API_KEY"),)
    arguments = {"method": "GET", "url": server.url("/status/401"), "headers": {"X-A": "b"}}
    outcome = await web.failure("http", arguments, secrets=secrets)

    assert server.requests[0].headers["authorization"] == "Bearer s3cret"
    assert server.requests[0].headers["x-a"] == "b"
    assert "s3cret" not in repr(outcome)


@pytest.mark.parametrize(
    ("status", "code", "final"),
    [
        (400, "http-4xx", True),
        (404, "http-4xx", True),
        (408, "http-4xx", False),
        (425, "http-4xx", False),
        (429, "http-4xx", False),
        (500, "http-5xx", False),
        (503, "http-5xx", False),
    ],
)
async def test_an_answer_from_400_up_is_a_failure(
    web: Desk, server: Server, status: int, code: str, final: bool
) -> None:
    url = server.url(f"/status/{status}?token=s3cret")
    outcome = await web.failure("http", {"method": "GET", "url": url})

    failure = outcome.failure
    assert (failure.code, outcome.final) == (code, final)
    assert failure.message == f"GET {server.url(f'/status/{status}')} was answered {status} Because"
    assert (failure.details["status"], failure.details["retry_after"]) == (status, "7")
    assert len(failure.details["body"]) == http.ERROR_BODY_BYTES_MAX


async def test_redirects_are_followed_and_counted(web: Desk, server: Server) -> None:
    result = await web.value("http", {"method": "GET", "url": server.url("/redirect/4")})
    assert (result["body"], result["url"]) == ("grün", server.url("/text"))

    outcome = await web.failure("http", {"method": "GET", "url": server.url("/redirect/9")})
    assert (outcome.failure.code, outcome.final) == ("http-redirects", True)
    assert "more than 5 times" in outcome.failure.message


async def test_an_answer_above_the_limit_is_refused(
    web: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "PAYLOAD_BYTES_MAX", 1024 * 1024)
    outcome = await web.failure("http", {"method": "GET", "url": server.url("/large")})

    assert (outcome.failure.code, outcome.final) == ("payload-too-large", True)
    assert "larger than 1,048,576 bytes" in outcome.failure.message


async def test_what_cannot_be_reached_may_be_tried_again(web: Desk, server: Server) -> None:
    dropped = await web.failure("http", {"method": "GET", "url": server.url("/drop")})
    nobody = await web.failure("http", {"method": "GET", "url": "http://user:s3cret@127.0.0.1:9/x"})

    for outcome in (dropped, nobody):
        assert (outcome.failure.code, outcome.final) == ("http-unreachable", False)
        assert "s3cret" not in repr(outcome)
    assert nobody.failure.message.startswith("GET http://127.0.0.1:9/x: ")


async def test_a_request_has_a_time_limit(web: Desk, server: Server) -> None:
    outcome = await web.failure(
        "http", {"method": "GET", "url": server.url("/hang"), "timeout": 0.05}
    )

    assert (outcome.failure.code, outcome.final) == ("http-timeout", False)
    assert "was not answered within 0.05 s" in outcome.failure.message


@pytest.mark.parametrize(
    ("wrong", "parameter"),
    [
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "ftp://127.0.0.1/x"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://[::1"}, "url"),
        ({"url": None}, "url"),
        ({"method": "GET /"}, "method"),
        ({"method": 5}, "method"),
        ({"headers": {"a": "b\r\nc: d"}}, "headers"),
        ({"headers": {"a b": "c"}}, "headers"),
        ({"headers": ["a"]}, "headers"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"mthod": "GET"}, "mthod"),
    ],
)
async def test_a_request_that_makes_no_sense_is_final(
    web: Desk, wrong: Any, parameter: str
) -> None:
    outcome = await web.failure("http", {"method": "GET", "url": "http://127.0.0.1:9/", **wrong})

    assert (outcome.failure.code, outcome.final) == ("arguments-invalid", True), outcome
    assert outcome.failure.details == {"parameter": parameter}


async def test_a_redirect_to_another_scheme_is_refused(web: Desk, server: Server) -> None:
    outcome = await web.failure("http", {"method": "GET", "url": server.url("/elsewhere")})

    assert (outcome.failure.code, outcome.final) == ("arguments-invalid", True)
    assert "where it redirects to" in outcome.failure.message


async def test_connections_are_kept_and_cookies_are_not(web: Desk, server: Server) -> None:
    for _ in range(3):
        await web.run("http", {"method": "GET", "url": server.url("/cookie")})

    assert server.connections == 1
    assert not any("cookie" in each.headers for each in server.requests)


async def test_a_cancelled_request_ends_at_once(web: Desk, server: Server) -> None:
    reported = web.begin("http", {"method": "GET", "url": server.url("/hang")}, key="h")
    async with asyncio.timeout(60):
        while not server.requests:  # noqa: ASYNC110  (the server knows)
            await asyncio.sleep(0.001)
    web.worker.cancel("run", "h", 1)
    outcome = await asyncio.wait_for(reported, 60)

    assert "cancelled" in repr(outcome)
