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


class FakeCredential:
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
    """A stream that records its revocation."""

    def __init__(self, credential: Any) -> None:
        self.credential = credential
        self.lost = asyncio.Event()

    def on_revoked(self) -> None:
        get_credential_monitor().remove(self)
        self.lost.set()


async def until_lost(stream: Stream) -> None:
    await stream.lost.wait()


def streams(*credentials: Any) -> list[Stream]:
    found = [Stream(credential) for credential in credentials]
    for stream in found:
        get_credential_monitor().add(stream)
    return found


async def test_a_stream_with_an_invalid_credential_ends_at_its_check(clock: Clock) -> None:
    good, bad = streams(FakeCredential(), FakeCredential(good=False))
    await clock.advance(watching.VERIFY_INTERVAL_SECONDS)
    assert bad.lost.is_set()
    assert not good.lost.is_set()
    get_credential_monitor().remove(good)
    assert len(get_credential_monitor()) == 0


async def test_any_thread_can_start_a_check_of_all_streams() -> None:
    known, broken, *bad = streams(
        FakeCredential(known=True), FakeCredential(fails=True), *[FakeCredential(good=False)] * 20
    )
    thread = threading.Thread(target=check_all_loops)
    thread.start()
    thread.join()
    for stream in bad:
        await until_lost(stream)
    assert (known.credential.asked, broken.credential.asked) == (0, 1)
    assert not known.lost.is_set()
    for stream in (known, broken):
        get_credential_monitor().remove(stream)


async def test_a_revocation_during_a_check_starts_another() -> None:
    (stream,) = streams(FakeCredential())
    get_credential_monitor().check_now()
    await asyncio.sleep(0)
    stream.credential.good = False
    get_credential_monitor().check_now()
    await until_lost(stream)


async def test_a_stream_without_a_credential_is_not_checked() -> None:
    (stream,) = streams(None)
    assert len(get_credential_monitor()) == 0
    get_credential_monitor().remove(stream)


class Down:
    """A credential that cannot be verified."""

    def get_cached(self) -> None:
        return None

    async def verify(self) -> Any:
        raise TransportRefusal(503)


async def test_without_verification_a_stream_goes_on_until_its_credential_expires(subtests: pytest.Subtests) -> None:
    for left, good in [(None, True), (60, True), (-1, False)]:
        with subtests.test(left=left, good=good):
            expires = None if left is None else time.time() + left
            credential = StreamCredential(Down(), DjangoPrincipal(issuer="tests", subject="ann", expires_at=expires))  # type: ignore[arg-type]
            assert not credential.is_known_valid()
            assert await credential.is_valid() is good
