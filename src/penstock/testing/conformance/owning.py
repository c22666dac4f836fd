"""One process owns a Store at a time, under a token that fences the others off (SPEC 4.8)."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.errors import Fenced
from penstock.ports.store import Appended
from penstock.testing.conformance.histories import Factory, more, new, opened, put, refused


class OwningLaws:
    async def test_one_owns_and_the_others_stand_by(self, factory: Factory) -> None:
        async with opened(factory) as one, opened(factory) as two:
            assert await one.owner() is None
            first = await one.claim("node-1", "/run/one")
            assert first is not None
            assert (first.node, first.address) == ("node-1", "/run/one")
            assert await two.claim("node-2", "") is None
            assert await one.claim("node-1", "") is None
            assert first.clean
            assert await two.owner() == replace(first, clean=False)
            renewed = await one.renew(first)
            assert renewed.renewed_at >= first.renewed_at
            assert await two.owner() == renewed
            await two.set_global({"a": b"1", "b": b"2"})
            await put(two, new("x", b"1", b"2"))
            pulse = await one.pulse(renewed)
            assert (pulse.owner.token, pulse.head) == (first.token, 2)
            assert pulse.data == {"a": b"1", "b": b"2"}
            assert await two.owner() == pulse.owner
            renewed = pulse.owner

            await one.release(renewed)
            second = await two.claim("node-2", "")
            assert second is not None
            assert second.token > first.token
            assert second.clean
            assert await one.claim("node-1", "") is None

    async def test_an_older_token_is_refused(self, factory: Factory) -> None:
        async with opened(factory) as one, opened(factory) as two:
            first = await one.claim("node-1", "")
            assert first is not None
            (row,) = await put(one, new("a", token=first.token))
            await one.release(first)
            second = await two.claim("node-2", "")
            assert second is not None
            commandless, ok = more(row, b"old", token=first.token), new("c", b"own")
            outcomes = await one.append(
                [commandless, new("b", b"old", token=first.token), ok, new("d", token=second.token)]
            )

            assert [type(o) for o in outcomes] == [Fenced, Fenced, Appended, Appended]
            assert isinstance(outcomes[0], Fenced)
            assert (outcomes[0].token, outcomes[0].newest) == (first.token, second.token)
            assert await one.find("a") == row
            assert await one.find("b") is None
            await refused(Fenced, one.renew(first))
            await refused(Fenced, one.pulse(first))
            await one.release(first)
            assert await one.owner() == replace(second, clean=False)
            assert await one.claim("node-1", "") is None
            (row,) = await put(one, more(row, b"a command's own events"))
            await put(two, more(row, token=second.token))

    async def test_closing_lets_go_of_ownership(self, factory: Factory) -> None:
        async with opened(factory) as two:
            async with opened(factory) as one:
                first = await one.claim("node-1", "")
                assert first is not None
                assert await two.claim("node-2", "") is None
            second = await two.claim("node-2", "")
            assert second is not None
            assert second.token > first.token
