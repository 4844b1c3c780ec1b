"""Signals of this package.

Receivers run in the thread that uses the database. Their exceptions are only logged.
"""

from django.dispatch import Signal

session_opened = Signal()
"""Signal that a client has opened a session.

Sent by the Session model, with `session`, the row.
"""

session_closed = Signal()
"""Signal that a session has ended.

Sent by the Session model, with `session`, the row, and `reason`, a string such as an EndReason. A session that expires
is closed when the expiry is detected, which can be later than its expiry time.
"""

call_started = Signal()
"""Signal that a call is about to run.

Sent with `call`, a mcp_django.observability.Call. The sender is its Server.

The receivers of this signal and of `call_finished` run on a separate thread with its own database connections, outside
of the call's transaction. The call waits for them, 5 seconds at most.
"""

call_finished = Signal()
"""Signal that a started call has ended.

Sent before the answer is sent, or after a cancellation, with

- `call`, a mcp_django.observability.Call; the sender is its Server
- `outcome`, an mcp_django.observability.Outcome, which is a string: "ok", "tool_error", "input_required", "error",
  "bug", "timeout", "cancelled" or "overloaded"
- `duration`, in seconds
- `reference`, which a bug's answer and the log contain, or None
- `error`, the exception that the client received (an MCPError, or one with a text about a limit), or None
"""

subscribed = Signal()
"""Signal that a client has subscribed to a resource.

Sent without a sender, with

- `server`, the alias of the server, and `uri`, that of the resource
- `owner`, the key of the principal
- `session`, the primary key of the Session that subscribed (`resources/subscribe`), or None for a stream of the
  stateless era (`subscriptions/listen`), which ends with its connection

It is sent soon afterwards, in the background.
"""

unsubscribed = Signal()
"""Signal that a subscription has ended: by request, or with its stream or session.

Sent as `subscribed` is, once for each subscription. A killed worker sends none for its streams.
"""

model_registered = Signal()
"""Signal that a ModelToolset was registered.

The sender is its model. Sent with `toolset`, the instance, and `server`, the alias of the server.
"""

clients_used = Signal()
"""Signal that an event loop starts to use servers of `MCP["CLIENTS"]`.

Sent on that loop, with `loop`, and `close`, a coroutine function that closes its connections.
"""

server_drained = Signal()
"""Signal that the calls of an event loop have ended at shutdown.

Its threads are stopped next. Sent in a thread, without arguments.
"""
