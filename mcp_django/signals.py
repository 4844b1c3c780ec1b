"""Signals of this package. Receivers run in the thread that uses the database; what they raise is logged only."""

from django.dispatch import Signal

session_opened = Signal()
"""A client has opened a session. Sent by the Session model, with `session`, the row."""

session_closed = Signal()
"""A session has ended. Sent by the Session model, with `session`, the row, and `reason`, a word such as an EndReason.

A session that expires is closed when it is noticed, which can be later than its expiry.
"""

call_started = Signal()
"""A request has become a call and is about to run. Sent with `call`, a mcp_django.Call. The sender is its Server.

Its receivers, and those of `call_finished`, have a lane and database connections of their own, outside of the call's
transaction. The call waits for them, 5 seconds at most.
"""

call_finished = Signal()
"""A call that was started has ended: before the answer goes out, or after the call was cancelled. Sent with

- `call`, a mcp_django.Call; the sender is its Server
- `outcome`, an mcp_django.Outcome, which is a string: "ok", "tool_error", "input_required", "error", "bug", "timeout",
  "cancelled" or "overloaded"
- `duration`, in seconds
- `reference`, the one that a bug's answer and the log have, or None
- `error`, the exception that the client was answered with (an MCPError, or one with a text about a limit), or None
"""

subscribed = Signal()
"""A client wants to be told when a resource changes. Sent with

- `server`, the alias of the server, and `uri`, that of the resource
- `owner`, the key of the principal
- `session`, the primary key of the Session that subscribed (`resources/subscribe`), or None for a stream of the
  stateless era (`subscriptions/listen`), which ends with its connection

There is no sender. Receivers are told soon after; nobody waits for them.
"""

unsubscribed = Signal()
"""A client is told no more of a resource, because it said so, its stream ended or its session did. Sent as
`subscribed` is, once for each time that was; a worker that is killed sends none for its streams.
"""

model_registered = Signal()
"""A ModelToolset was registered. The sender is its model. Sent with `toolset`, the instance, and `server`, the alias of
the server.
"""

clients_used = Signal()
"""An event loop of this process begins to use servers of `MCP["CLIENTS"]`. Sent on that loop, with `loop`, and `close`,
a coroutine function that closes what it has open.
"""

server_drained = Signal()
"""A server of this process shuts down: the calls of one of its loops have ended, and their threads are next. Sent in a
thread, without arguments.
"""
