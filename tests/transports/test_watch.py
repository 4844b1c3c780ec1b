"""Streams are looked at in turns, and all of them at once when something was taken away."""

import asyncio
import threading
import time
from typing import Any

import pytest

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.transports import credential_monitor as watching
from mcp_django.transports.credential_monitor import check_all_loops, get_credential_monitor
from mcp_django.transports.credentials import StreamCredential
from tests.support.clock import Clock


class Warrant:
    """One that is good, known to be good, or cannot be asked about."""

    def __init__(self, *, good: bool = True, known: bool = False, fails: bool = False) -> None:
        self.good, self.known, self.fails = good, known, fails
        self.asked = 0

    def is_known_valid(self) -> bool:
        return self.known

    async def is_valid(self) -> bool:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fails:
            raise RuntimeError("a bug")
        return self.good


class Stream:
    """One that says when it was lost."""

    def __init__(self, warrant: Any) -> None:
        self.credential = warrant
        self.lost = asyncio.Event()

    def on_revoked(self) -> None:
        get_credential_monitor().remove(self)
        self.lost.set()


async def until_lost(stream: Stream) -> None:
    await stream.lost.wait()


def streams(*warrants: Any) -> list[Stream]:
    found = [Stream(warrant) for warrant in warrants]
    for stream in found:
        get_credential_monitor().add(stream)
    return found


async def test_what_is_good_no_more_is_lost_within_its_turn(clock: Clock) -> None:
    good, bad = streams(Warrant(), Warrant(good=False))
    await clock.advance(watching.VERIFY_INTERVAL_SECONDS)
    assert bad.lost.is_set()
    assert not good.lost.is_set()
    get_credential_monitor().remove(good)
    assert len(get_credential_monitor()) == 0


async def test_any_thread_has_all_looked_at_now() -> None:
    known, broken, *bad = streams(Warrant(known=True), Warrant(fails=True), *[Warrant(good=False)] * 20)
    thread = threading.Thread(target=check_all_loops)
    thread.start()
    thread.join()
    for stream in bad:
        await until_lost(stream)
    assert (known.credential.asked, broken.credential.asked) == (0, 1)
    assert not known.lost.is_set()
    for stream in (known, broken):
        get_credential_monitor().remove(stream)


async def test_what_is_taken_away_while_they_are_looked_at_has_them_looked_at_again() -> None:
    (stream,) = streams(Warrant())
    get_credential_monitor().check_now()
    await asyncio.sleep(0)
    stream.credential.good = False
    get_credential_monitor().check_now()
    await until_lost(stream)


async def test_what_needs_no_warrant_is_not_watched() -> None:
    (stream,) = streams(None)
    assert len(get_credential_monitor()) == 0
    get_credential_monitor().remove(stream)


class Down:
    """A credential of which nobody can say whether it is good."""

    def get_cached(self) -> None:
        return None

    async def verify(self) -> Any:
        raise TransportRefusal(503)


async def test_while_nobody_can_say_a_stream_goes_on_until_its_credential_expires(subtests: pytest.Subtests) -> None:
    for left, good in [(None, True), (60, True), (-1, False)]:
        with subtests.test(left=left, good=good):
            expires = None if left is None else time.time() + left
            warrant = StreamCredential(Down(), DjangoPrincipal(issuer="tests", subject="ann", expires_at=expires))  # type: ignore[arg-type]
            assert not warrant.is_known_valid()
            assert await warrant.is_valid() is good
