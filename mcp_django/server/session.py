"""One session of the handshake era, as this process holds it.

The store (`ports.SessionStore`) keeps what must outlive the process; the calls in flight and the questions that wait
for an answer live here.
"""

import asyncio
import itertools
from typing import Any, Protocol

from ..protocol import jsonrpc
from ..protocol.revisions import Revision
from .ports import Interactive


class Cancellable(Protocol):
    def cancel(self) -> object: ...


class Session:
    """A client that said `initialize`, and what it said there."""

    __slots__ = (
        "_asked",
        "_ids",
        "client_capabilities",
        "client_info",
        "in_flight",
        "initialized",
        "key",
        "log_level",
        "owner",
        "pk",
        "revision",
        "state",
        "touched",
        "user_id",
    )

    def __init__(
        self,
        *,
        key: str,
        owner: str,
        revision: Revision,
        client_info: dict[str, Any],
        client_capabilities: dict[str, Any],
        log_level: str | None = None,
        initialized: bool = False,
        pk: Any = None,
        user_id: Any = None,
    ) -> None:
        self.key, self.owner, self.revision = key, owner, revision
        self.client_info, self.client_capabilities = client_info, client_capabilities
        self.log_level, self.initialized = log_level, initialized
        self.pk, self.user_id = pk, user_id
        self.state: dict[str, Any] = {}
        """For handlers; lives as long as this process knows the session."""
        self.in_flight: dict[jsonrpc.Id, Cancellable] = {}
        """Calls being served, by request id."""
        self.touched = 0.0
        """Monotonic time of the last write of `last_seen`; the store's."""
        self._asked: dict[jsonrpc.Id, asyncio.Future[jsonrpc.Response]] = {}
        self._ids = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Session of {self.client_info.get('name', 'a client')}, {self.revision.version}>"

    async def ask(
        self, outbox: Interactive, method: str, params: dict[str, Any] | None, *, timeout: float
    ) -> jsonrpc.Response:
        """Send a request on a call's stream and wait for the client's answer, `timeout` seconds at most.

        Raises TimeoutError. A question given up (timeout, cancellation) is taken back with `notifications/cancelled`
        (2025-11-25, basic/utilities/cancellation).
        """
        id = f"s{next(self._ids)}"
        # The future comes first: the answer may arrive before `put` returns.
        answer: asyncio.Future[jsonrpc.Response] = asyncio.get_running_loop().create_future()
        self._asked[id] = answer
        try:
            await outbox.put(jsonrpc.request(id, method, params))
            async with asyncio.timeout(timeout):
                return await answer
        except (asyncio.CancelledError, TimeoutError):
            outbox.put_nowait(jsonrpc.notification("notifications/cancelled", {"requestId": id}))
            raise
        finally:
            del self._asked[id]

    def answer(self, response: jsonrpc.Response) -> bool:
        """Hand a client's answer to the question it belongs to; False when nobody waits for it."""
        waiting = self._asked.get(response.id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(response)
        return True

    def cancel_all(self) -> None:
        """Cancel what is in flight; the session is over."""
        for flight in list(self.in_flight.values()):
            flight.cancel()
