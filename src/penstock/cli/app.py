"""The application's activities, from the file or module that --app names."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import shlex
import sys
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from penstock.cli.output import Problem
from penstock.cli.words import did_you_mean

if TYPE_CHECKING:
    from penstock.ports.activities import Served
    from penstock.verify.verification import Signature


BUILT_IN = "http"
_LOADED: dict[str, str] = {}
"""Files that were loaded as an application, by the name of the module."""
_LOADING = "cannot be called while the file is loaded as an application"


def load_app(named: str) -> list[Any]:
    """Every object made by `@activity` in a Python file, a module, or in what `module:attr` names."""
    module, source = _source(named)
    found = _collected(source, _is_activity)
    if not found and not _collected(source, _is_workflow):
        raise Problem(
            "app-empty",
            f"`{named}` has no activities",
            place=getattr(module, "__file__", None),
            hint="mark functions with `@activity` (from penstock import activity)",
        )
    return found


def load_workflows(named: str, *, needed: bool = True) -> list[Any]:
    """Every function made by `@workflow`, as `load_app`."""
    module, source = _source(named)
    found = _collected(source, _is_workflow)
    if not found and needed:
        raise Problem(
            "app-empty",
            f"`{named}` has no workflow functions",
            place=getattr(module, "__file__", None),
            hint="mark functions with `@workflow` (from penstock import workflow)",
        )
    return found


def load_modules(named: str) -> Any:
    """The module, or what `module:attr` names in it."""
    return _source(named)[1]


def _source(named: str) -> tuple[ModuleType, Any]:
    module, attr = _module(named)
    source: Any = module
    if attr:
        try:
            for part in attr.split("."):
                source = getattr(source, part)
        except AttributeError:
            raise Problem(
                "app-unknown",
                f"`{named.rpartition(':')[0]}` has no `{attr}`",
                hint=did_you_mean(attr, vars(module))
                or f"--app {shlex.quote(named.rpartition(':')[0])} takes all activities of it",
            ) from None
    return module, source


def served_by(activities: Iterable[Any]) -> dict[str, Served]:
    """What an engine with these activities would serve, by name."""
    from penstock.sdk.activities.http import Http
    from penstock.sdk.workflow import Registry, entry_of

    served = {entry.name: entry.served for entry in Registry(activities)}
    served[BUILT_IN] = entry_of(Http(), name=BUILT_IN).served
    return served


def signatures_by(activities: Iterable[Any]) -> dict[str, Signature]:
    """What their annotations say, by name."""
    from penstock.sdk.signatures import signature_of
    from penstock.sdk.workflow import Registry

    found = {
        entry.name: signature_of(entry.function, without=entry.served.transactional)
        for entry in Registry(activities)
    }
    return {name: signature for name, signature in found.items() if signature is not None}


def _collected(source: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    if wanted(source):
        return [source]
    values: Iterable[Any]
    if isinstance(source, list | tuple | set | frozenset):
        values = cast("Iterable[Any]", source)
    elif isinstance(source, dict):
        values = cast("dict[Any, Any]", source).values()
    elif isinstance(source, ModuleType):
        values = vars(source).values()
    else:
        values = [getattr(source, name, None) for name in dir(source) if not name.startswith("__")]
    found: list[Any] = []
    for value in values:
        if wanted(value) and not any(value is known for known in found):
            found.append(value)
    return found


def _is_workflow(value: Any) -> bool:
    from penstock.sdk.marks import is_workflow

    try:
        return callable(value) and is_workflow(value)
    except Exception:
        return False


def _is_activity(value: Any) -> bool:
    from penstock.sdk.workflow import ATTRIBUTE, Declared

    try:
        return callable(value) and isinstance(getattr(value, ATTRIBUTE, None), Declared)
    except Exception:
        return False


def _module(named: str) -> tuple[ModuleType, str]:
    path = Path(named)
    if named.endswith(".py") or path.is_file():
        return _from_file(path), ""
    name, _, attr = named.partition(":")
    if name.endswith(".py"):
        return _from_file(Path(name)), attr
    sys.path.insert(0, str(Path.cwd()))
    try:
        with _no_main():
            return importlib.import_module(name), attr
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise Problem(
                "app-unknown",
                f"there is no module `{name}`",
                hint="--app takes a file such as shop.py, or module:attr",
            ) from None
        raise _failed(error, name) from error
    except (Exception, SystemExit) as error:
        raise _failed(error, name) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        near = (
            did_you_mean(path.name, [p.name for p in path.parent.glob("*.py")])
            if path.parent.is_dir()
            else None
        )
        raise Problem(
            "app-unknown",
            f"there is no file {path}",
            hint=near or "--app takes the Python file with the activities, such as shop.py",
        )
    path = path.resolve()
    name = path.stem
    # By its own name and from its own folder, so that a child process (`cpu=True`) can import it too.
    sys.path.insert(0, str(path.parent))
    known = sys.modules.get(name)
    if known is not None and name in _LOADED and _LOADED[name] == str(path):
        return known
    if known is not None and getattr(known, "__file__", None) != str(path):
        name = f"penstock_app_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Problem("app-unknown", f"{path} is no Python file", hint="its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _LOADED[name] = str(path)
    try:
        with _no_main():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name], _LOADED[name]
        raise _failed(error, str(path)) from error
    return module


@contextmanager
def _no_main() -> Generator[None]:
    """A file is loaded for what is in it: what it does when it is executed belongs below `if __name__ == "__main__":`."""
    real, thread = asyncio.run, get_ident()

    def refused(main: Any, *args: Any, **named: Any) -> Any:
        if get_ident() != thread:
            return real(main, *args, **named)
        if hasattr(main, "close"):
            main.close()  # or Python warns that it was never awaited
        raise RuntimeError(f"asyncio.run() {_LOADING}")

    asyncio.run = refused
    try:
        yield
    finally:
        asyncio.run = real


def _failed(error: BaseException, named: str) -> Problem:
    """The application's own error, at the deepest place of it that is not ours and not Python's."""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{_near(error.filename)}:{error.lineno}:{error.offset}"
        return Problem(
            "app-failed",
            f"SyntaxError: {error.msg}",
            place=place,
            excerpt=_excerpt(error.filename, error.lineno),
        )
    code = getattr(error, "code", None) if not isinstance(error, SystemExit) else None
    hint = getattr(error, "hint", None)
    if isinstance(error, RuntimeError) and str(error).endswith((_LOADING, "running event loop")):
        hint = 'put it below `if __name__ == "__main__":`'
    here = str(Path(__file__).resolve().parents[1])
    place, excerpt = named, None
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith((here, "<frozen")) and "/lib/python" not in frame.filename:
            place, excerpt = (
                f"{_near(frame.filename)}:{frame.lineno}",
                _excerpt(frame.filename, frame.lineno),
            )
    message = str(error) if isinstance(code, str) else f"{type(error).__name__}: {error}"
    return Problem(
        code if isinstance(code, str) else "app-failed",
        message,
        place=place,
        hint=hint,
        excerpt=excerpt,
    )


def _near(filename: str) -> str:
    """As the reader would write it from here."""
    try:
        return str(Path(filename).resolve().relative_to(Path.cwd()))
    except ValueError:
        return filename


def _excerpt(filename: str, line: int | None) -> str | None:
    import linecache

    text = linecache.getline(filename, line or 0).rstrip()
    if not text:
        return None
    gap = " " * len(str(line))
    return f"{gap} |\n{line} | {text}\n{gap} |"
