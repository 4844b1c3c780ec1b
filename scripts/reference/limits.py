"""Effects of the limits and rates, for the page that lists them."""

from typing import Final

from scripts.reference.sources import MARK

PATH: Final = "limits.md"
INTRODUCTION: Final = f"""\
# Limits and rates

{MARK}

These sections of the `MCP` setting bound the work of one client and of one process. [Settings](settings.md) lists the
other sections.

- A request over a limit is refused at once, with an error that names the limit. It waits only where the table names a
  queue.
- A limit applies to one server in one process. The limits of sessions are counted in the database, for all workers.
- On a connection (WebSocket, HTTP+SSE, stdio), the error -32603 replaces the statuses 429 and 503. The connection stays
  open.
- Threads are shared by all clients of a process. If clients do not trust each other, set a `timeout` for the handlers,
  and `IN_FLIGHT` below `THREADS`.

[Fixed limits](fixed-limits.md) lists the bounds that no setting changes.

"""
REFUSED: Final = "HTTP 503 with `Retry-After`; on a stream, -32603."
EFFECTS: Final = {
    "BODY": "HTTP 413. A socket closes with 1009. A line on stdin is skipped with -32600. "
    "Django reads a whole body before its view runs, so set the same limit in the proxy.",
    "RESULT_BYTES": "A tool's result becomes an error that names the limit and the arguments for pages. "
    "`@tool(max_result=…)` replaces the limit. A resource or a prompt ends with -32603.",
    "IN_FLIGHT": "Calls wait in a [queue](fixed-limits.md#sessions-and-streams), in their order. If it is full, HTTP "
    "answers 429 with `Retry-After`, and a connection is not read further. A batch waits as a whole, or is refused as "
    "a whole. `initialize`, `ping` and the methods of tasks count apart, with the same limit.",
    "SESSIONS_PER_OWNER": "The session that was idle longest ends; one that serves a call ends last. "
    "Its connection closes too (4404 on a socket).",
    "SESSIONS": "`initialize` is refused: HTTP 503 with `Retry-After`.",
    "SESSION_IDLE": "The next request gets HTTP 404, and the client initializes again. "
    "An open connection keeps its session.",
    "SESSION_LIFETIME": "As `SESSION_IDLE`.",
    "SSE_UPGRADE_AFTER": "The response becomes an event stream.",
    "SEND_BUFFER": "The handler waits until the client reads. On a connection, all calls share one buffer.",
    "SEND_TIMEOUT": "A stateless call is cancelled. A call of a session continues, and its client can "
    "[resume](../run/streams.md). A connection ends (1013 on a socket).",
    "EVENTS": "The oldest message is discarded. A client that resumes before it gets HTTP 400.",
    "KEEP_ALIVE": "A comment is sent. Sockets use `PING` instead.",
    "PING": "A ping is sent. Without a response in the same time, the connection ends.",
    "MAX_STREAMS": "The stream is refused: HTTP 503 with `Retry-After`. Counted over all servers of the process.",
    "MAX_STREAMS_PER_OWNER": "The stream is refused: HTTP 429 with `Retry-After`.",
    "WSGI_WAITS": "The answer comes at once: `tasks/result` with HTTP 429 and `Retry-After`, a call with the task that "
    "it became, a call beyond `IN_FLIGHT` with HTTP 429. Counted over all servers of the process.",
    "WSGI_WAITS_PER_OWNER": "As `WSGI_WAITS`.",
    "SUBSCRIPTIONS": "The subscription is refused: -32602.",
    "ELICITATION_TIMEOUT": "The question is withdrawn, and the handler gets `InputUnavailable`.",
    "URL_ELICITATION_TIMEOUT": "The client is asked to open the page again. Under WSGI, a call never waits.",
    "STATE_TTL": "The `requestState` is refused: -32602.",
    "EVENT_TTL": "Older events are deleted. A client that resumes later misses them.",
    "THREADS": "The call waits in the queue of `THREAD_QUEUE`.",
    "THREAD_QUEUE": REFUSED,
    "WAITING_THREADS": f"{REFUSED} An `async def` handler needs no thread to wait.",
    "BACKGROUND": f"{REFUSED} Counted over all servers of the process.",
    "STDIO_GRACE": "Running calls get -32603 and are cancelled; the process ends.",
    "SHUTDOWN_GRACE": "Running calls are cancelled: HTTP 503, or -32603 at the end of the stream.",
    "PRINCIPAL": "HTTP 429 with `Retry-After`. A connection ends after 32 refusals in a row (1013 on a socket).",
    "ADDRESS": "HTTP 429 with `Retry-After`. A socket is refused if its server can send a status.",
    "TOKEN_FAILURES": "HTTP 429 with `Retry-After`. Credentials that the worker has cached as valid still work.",
    "REGISTRATION": "HTTP 429 with `Retry-After`.",
    "CACHE": "",
    "NUM_PROXIES": "",
}
"""Effect of exceeding each limit or rate."""
