"""Twins: how an object that is awaited becomes one that is waited for; and the thread in which the engine lives."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import inspect
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import FunctionType
from typing import Any, cast

from penstock import wiring
from penstock.errors import PenstockError, Rejected
from penstock.sdk import client

OURS = "penstock."
"""Objects of these modules that have something to await are given as twins; all others as they are."""
_END: Any = object()


class Thread:
    """The event loop of one engine, in a thread of its own."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._opened: concurrent.futures.Future[client.Engine] = concurrent.futures.Future()
        # A daemon: who forgets to close must not hang at the end; `_close_all` closes then.
        self._thread = threading.Thread(
            target=self._main, args=(url, options), name="penstock-sync", daemon=True
        )
        self._thread.start()

    def opened(self) -> client.Engine:
        try:
            return self._opened.result()
        except BaseException:
            self.close()
            raise

    def _main(self, url: str, options: dict[str, Any]) -> None:
        try:
            asyncio.run(self._serve(url, options))
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            elif not isinstance(error, asyncio.CancelledError):
                raise

    async def _serve(self, url: str, options: dict[str, Any]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with wiring.open(url, **options) as engine:
            self._opened.set_result(engine)
            await self._stop.wait()

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call it in the loop, wait for what it gives, and hand that over."""
        self._check()
        loop = self._loop
        assert loop is not None
        work = self._do(function, arguments, named)
        try:
            future = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:
            work.close()
            raise _closed() from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits any more
            raise

    async def _do(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        result = function(
            *(_original(each) for each in arguments),
            **{name: _original(each) for name, each in named.items()},
        )
        if inspect.isawaitable(result):
            result = await result
        return self.given(result)

    def given(self, value: Any) -> Any:
        """What the engine gave, as code without asyncio can use it."""
        if isinstance(value, AsyncIterator):
            return Stream(self, cast("AsyncIterator[Any]", value))
        if type(value) is list:
            return [self.given(each) for each in cast("list[Any]", value)]
        cls = cast("type[Any]", type(value))
        return twin_of(cls)(self, value) if has_twin(cls) else value

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise Rejected(
                "sync-forked",
                f"this engine was opened in process {self._pid}, of which this one is a fork; its thread is not here",
                hint="open an engine in each process, after the fork: on first use, or in the server's post-fork hook",
            )
        if not self._thread.is_alive():
            raise _closed()
        _refuse_in_loop("called")

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Have it done some time, if the loop is still there."""
        loop = self._loop
        if loop is None or os.getpid() != self._pid or not self._thread.is_alive():
            work.close()
            return
        try:
            asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:
            work.close()

    def close(self) -> None:
        """Stop the engine as `async with` does, and wait for it; twice is harmless, and so is a fork's."""
        if os.getpid() != self._pid:
            return
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                loop.call_soon_threadsafe(stop.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()


class Twin:
    """An object of the engine, for code without asyncio; valid in any thread."""

    __slots__ = ("__weakref__", "_of", "_thread")

    def __init__(self, thread: Thread, of: Any) -> None:
        self._thread, self._of = thread, of

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._thread.given(getattr(self._of, name))

    def __repr__(self) -> str:
        return f"sync.{self._of!r}"


class Stream:
    """What an `async for` would give, for a plain `for`; `close()` ends it before its end."""

    def __init__(self, thread: Thread, of: AsyncIterator[Any]) -> None:
        self._thread, self._of = thread, of
        self._over = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        value = self._thread.call(anext, self._of, _END)
        if value is _END:
            self._over = True
            raise StopIteration
        return value

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._thread.later(_end_of(self._of))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


async def _end_of(stream: Any) -> None:
    if hasattr(stream, "aclose"):
        await stream.aclose()


def _original(value: Any) -> Any:
    return cast("Any", value)._of if isinstance(value, Twin) else value


@functools.cache
def has_twin(cls: type) -> bool:
    """It is one of ours, and has something to await."""
    return cls.__module__.startswith(OURS) and any(
        inspect.iscoroutinefunction(member) for _, member in inspect.getmembers_static(cls)
    )


@functools.cache
def twin_of(cls: type) -> type[Twin]:
    members: dict[str, Any] = {
        "__slots__": (),
        "__doc__": cls.__doc__,
        "__module__": "penstock.sync",
    }
    for name, member in inspect.getmembers_static(cls):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            members[name] = _method(member)
    if issubclass(cls, client.Engine):
        members |= {"close": _close, "__enter__": _enter, "__exit__": _exit}
    return type(cls.__name__, (Twin,), members)


def _method(function: FunctionType) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return self._thread.call(function, self._of, *arguments, **named)

    for name in functools.WRAPPER_ASSIGNMENTS:  # not `wraps`: what it would point to is awaited
        setattr(method, name, getattr(function, name))
    setattr(method, "__signature__", inspect.signature(function))  # noqa: B010
    return method


def _close(self: Any) -> None:
    """Stop: attempts end or are cut, what they gave is kept; also done at the end of the `with` and of the program."""
    _OPEN.discard(self._thread)
    self._thread.close()


def _enter(self: Any) -> Any:
    return self


def _exit(self: Any, *_error: object) -> None:
    _close(self)


def _closed() -> PenstockError:
    return PenstockError("the engine is closed", hint="use it inside `with penstock.sync.open(…)`")


_OPEN: weakref.WeakSet[Thread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """At the end of the program: a clean stop, so that whoever comes next has nothing to recover."""
    for thread in list(_OPEN):
        thread.close()


def opened(url: str, options: dict[str, Any]) -> Any:
    """An engine in a thread of its own, open."""
    _refuse_in_loop("opened")
    inspect.signature(wiring.open).bind(url, **options)  # a wrong name is told here, as of any call
    thread = Thread(url, options)
    engine = twin_of(client.Engine)(thread, thread.opened())
    _OPEN.add(thread)
    return engine


def _refuse_in_loop(what: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Rejected(
        "sync-in-async",
        f"the synchronous engine was {what} inside an event loop, which it would block",
        hint="in `async def` use `penstock.open` and `await`; or call it in a thread: `asyncio.to_thread`",
    )


Engine: Any = twin_of(client.Engine)
Run: Any = twin_of(client.Run)
