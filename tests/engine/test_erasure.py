"""What is erased is gone from every read and from the disk, and the chain still checks (SPEC 6.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Context, activity, workflow
from penstock.engine.erasure import KIND
from penstock.model.codec import encode_event
from penstock.testing.harness import Harness, harness
from support.stores import Make

SECRET = "Emma-of-Ulm"


@activity
async def greet(name: str) -> str:
    penstock.sdk.worker.current().log(f"greeting {name}")  # type: ignore[attr-defined]
    return f"hello {name}"


@activity
async def large(name: str) -> str:
    return name * 200_000


@activity
async def fails(name: str) -> None:
    raise RuntimeError(f"no {name}")


NAMED = {"inputs": {"name": {"from": "input", "path": "$.name"}}}
DOCUMENT: dict[str, Any] = {
    "id": "greeting",
    "tasks": {
        "greet": {"do": "greet", **NAMED},
        "large": {"do": "large", "after": ["greet"], **NAMED},
        "fails": {"do": "fails", "after": ["greet"], "retry": {"attempts": 1}, **NAMED},
        "items": {
            "type": "map",
            "config": {
                "items": "[input.name, 'x']",
                "body": {"do": "greet", "inputs": {"name": {"template": "${item}"}}},
            },
            "after": ["large"],
        },
    },
    "links": [{"from": "fails", "to": "items", "on": "error"}],
    "outputs": {"text": "tasks.greet.output", "items": "tasks.items.output"},
}


@pytest.fixture
async def engine(make_store: Make) -> AsyncIterator[Harness]:
    async with harness(activities=[greet, large, fails], store=make_store()) as made:
        await made.register(DOCUMENT)
        yield made


async def begun(engine: Harness, id: str = "r") -> penstock.sdk.client.Run:  # type: ignore[name-defined]
    run = await engine.start(
        "greeting",
        {"name": SECRET},
        id=id,
        attributes={"name": SECRET},
        metadata={"name": SECRET},
    )
    await engine.finish(run)
    return run


async def test_a_whole_run_is_erased_and_its_chain_still_checks(
    engine: Harness, tmp_path: Path
) -> None:
    run = await begun(engine)
    before = [(item.seq, item.type, item.at, item.hash) for item in await run.history()]
    shown = await run.show()

    assert await engine.data.erase(run.id, by="ann", reason="asked to") == len(before)

    assert await engine.audit() == []
    after = await run.history()
    assert [(item.seq, item.type, item.at, item.hash) for item in after] == before
    assert all(item.event.erased for item in after)
    assert SECRET not in repr(after)
    left = await run.show()
    assert SECRET not in repr(left)
    assert left.input == "<erased>"
    assert [(t.key, t.status) for t in left.tasks] == [(t.key, t.status) for t in shown.tasks]
    assert {t.key: t.output for t in left.tasks}["greet"] == "<erased>"
    assert await engine.list(attributes={"name": SECRET}) == []
    assert await engine.data.payload(run.id, 1) == "<erased>"
    (act,) = await engine.data.erasures(run.id)
    assert (act["by"], act["reason"], len(act["events"])) == ("ann", "asked to", len(before))
    assert await engine.data.erase(run.id, by="bob", reason="again") == 0
    await begun_after(engine)
    assert not _on_disk(tmp_path / "store.db")


def _on_disk(file: Path) -> bool:
    return file.exists() and SECRET.encode() in file.read_bytes()


async def begun_after(engine: Harness) -> None:
    """Other runs go on."""
    run = await engine.start("greeting", {"name": "x"}, id="next")
    await engine.finish(run)


async def test_a_task_or_an_event_is_erased_alone(engine: Harness) -> None:
    run = await begun(engine)
    assert await engine.data.erase(run.id, by="ann", reason="r", tasks=["large", "items"]) == 3
    tasks = {task.key: task.output for task in (await run.show()).tasks}
    assert tasks["large"] == "<erased>"
    assert tasks["greet"] == f"hello {SECRET}"
    assert [item.event.erased for item in await run.history()].count(True) == 3
    assert await engine.data.erase(run.id, by="ann", reason="r", events=[1, 2]) == 2
    assert (await run.show()).input == "<erased>"
    assert len(await engine.data.erasures(run.id)) == 2
    assert await engine.audit() == []


async def test_what_cannot_be_erased_is_refused_and_changes_nothing(engine: Harness) -> None:
    await engine.register(
        {"id": "waits", "tasks": {"a": {"type": "signal", "config": {"name": "go"}}}}
    )
    waiting = await engine.start("waits", 1, id="w")
    run = await begun(engine)
    for id, arguments, code in (
        ("w", {"by": "a", "reason": "r"}, "run-open"),
        ("none", {"by": "a", "reason": "r"}, "not-found"),
        ("r", {"by": "", "reason": "r"}, "who-missing"),
        ("r", {"by": "a", "reason": ""}, "who-missing"),
        ("r", {"by": "a", "reason": "r", "events": [0]}, "not-found"),
        ("r", {"by": "a", "reason": "r", "events": [99]}, "not-found"),
        ("r", {"by": "a", "reason": "r", "tasks": ["gree"]}, "not-found"),
    ):
        with pytest.raises(penstock.PenstockError) as caught:
            await engine.data.erase(id, **arguments)
        assert caught.value.code == code
    assert not any(item.event.erased for item in await run.history())
    assert await engine.core.store.records(KIND) == []
    await waiting.signal("go", 2)
    assert await engine.finish(waiting) == 2


async def test_audit_tells_an_erasure_that_was_cut_off_from_one_that_nobody_did(
    engine: Harness,
) -> None:
    run = await begun(engine)
    store = engine.core.store
    erasing, store.erase = store.erase, None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        await engine.data.erase(run.id, by="ann", reason="r", events=[1])
    store.erase = erasing  # type: ignore[method-assign]
    assert await engine.audit() == ["run r: the erasure of event 1 was not finished; do it again"]
    await engine.data.erase(run.id, by="ann", reason="r", events=[1])
    assert await engine.audit() == []
    await store.drop(KIND, ["r/1"])
    assert await engine.audit() == ["run r: event 1 was erased, and nothing says by whom"]


async def test_an_erased_run_cannot_go_on(engine: Harness) -> None:
    run = await begun(engine)
    await engine.data.erase(run.id, by="ann", reason="r", events=[1])
    with pytest.raises(penstock.PenstockError) as caught:
        await run.reset(1, token="any", reason="again")
    assert caught.value.code == "run-erased"


@workflow
async def greets(ctx: Context, name: str) -> str:
    ctx.undo(greet, name)
    ctx.set_attributes({"name": name})
    ctx.publish("greeting", name)
    ctx.side_effect(lambda: name)
    update = await ctx.update("say")
    assert update is not None
    update.answer(name)
    update = await ctx.update("say")
    assert update is not None
    update.refuse(f"not {name}")
    said = await ctx.call(greet, await ctx.call(greet, name * 20))
    await ctx.child(gives_up, name)
    return said


@workflow
async def gives_up(ctx: Context, name: str) -> None:
    raise RuntimeError(f"no {name}")


async def test_a_run_of_a_function_is_erased_and_still_read(make_store: Make) -> None:
    async with harness(
        activities=[greet], workflows=[greets, gives_up], store=make_store()
    ) as engine:
        run = await engine.start(greets, SECRET, id="one")
        assert await run.update("say", SECRET) == SECRET
        with pytest.raises(penstock.Rejected, match=f"not {SECRET}"):
            await run.update("say", SECRET)
        with pytest.raises(penstock.RunFailed, match=SECRET):
            await run.result()
        before = await run.show()
        for id in ("one", "one/child:gives_up#1"):
            assert await engine.data.erase(id, by="clerk", reason="asked for") > 0
            gone = await engine.get(id)
            history = [encode_event(item.event) for item in await gone.history()]
            assert SECRET.encode() not in b"".join(history)
            shown = await gone.show()
            assert SECRET not in repr(shown)
            assert shown.status == "FAILED"
            assert await engine.audit(id) == []
            with pytest.raises(penstock.RunFailed, match="erased"):
                await gone.result()
        after = await run.show()
        assert after.execution_path == before.execution_path
        assert [task.status for task in after.tasks] == [task.status for task in before.tasks]


@activity
async def back(what: Any = None) -> None:
    pass


@workflow
async def starts_another(ctx: Context, name: str) -> str:
    return await ctx.start(gives_up, name)


@workflow
async def undoes_much(ctx: Context, name: str) -> None:
    await ctx.call(large, name, undo=back)
    raise RuntimeError(name)


@workflow
async def has_undo(ctx: Context, name: str) -> None:
    await ctx.call(greet, name, undo=back)


@workflow
async def undoes_its_child(ctx: Context, name: str) -> None:
    await ctx.child(has_undo, name)
    raise RuntimeError(name)


@workflow
async def undoes_before(ctx: Context, name: str, again: bool = False) -> None:
    if not again:
        await ctx.call(greet, name, undo=back)
        ctx.continue_as_new(name, True)
    raise RuntimeError(name)


KINDS = [starts_another, undoes_much, undoes_its_child, undoes_before]


@pytest.mark.parametrize("function", KINDS)
async def test_what_was_to_be_undone_is_erased_and_still_read(function: Any) -> None:
    functions = [*KINDS, gives_up, has_undo]
    async with harness(activities=[greet, large, back], workflows=functions) as engine:
        run = await engine.start(function, SECRET, id="one")
        await engine.settle()
        shown = await run.show()
        assert await engine.data.erase("one", by="clerk", reason="asked for") > 0
        engine.core.cache.clear()
        left = await run.show()
        assert SECRET not in repr(left)
        assert (left.status, left.execution_path) == (shown.status, shown.execution_path)
        history = [encode_event(item.event) for item in await run.history()]
        assert SECRET.encode() not in b"".join(history)
        assert await engine.audit("one") == []


async def test_what_was_erased_event_by_event_is_erased_as_a_whole(make_store: Make) -> None:
    async with harness(activities=[greet], workflows=[has_undo], store=make_store()) as engine:
        run = await engine.start(has_undo, SECRET, id="one", attributes={"name": SECRET})
        await engine.finish(run)
        seqs = [item.seq for item in await run.history()]
        await engine.data.erase("one", by="clerk", reason="asked for", events=seqs)
        await engine.data.erase("one", by="clerk", reason="asked for")
        assert SECRET not in repr(await engine.list(limit=10))
        assert await engine.audit("one") == []
