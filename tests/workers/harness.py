"""Workers that share a database and a Redis.

Two servers of one process each are two workers, because a test can choose between them; with `processes=2` it is one
server of two processes, and the kernel chooses.
"""

import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.servers.databases import ROOT, Database, environment
from tests.servers.harness import Server, serve
from tests.support.redis import OwnRedis
from tests.support.waiting import WAIT_SECONDS, wait_until
from tests.workers.unreliable_layer import DeliveryFaults

SITE = "tests.workers.settings"
RESOURCE = "http://127.0.0.1:8000/mcp"
"""The resource of tokens, whatever the ports of the workers."""
# Each thread keeps a connection, and PostgreSQL has a hundred for all tests that run at once.
LIMITS = {"THREADS": 4, "IN_FLIGHT": 100, "KEEP_ALIVE": 1}


class Workers:
    """Running workers. `ports` has those that are alive, and changes as they come and go."""

    def __init__(self, stack: ExitStack, database: Database, redis: OwnRedis | None, *, processes: int = 1) -> None:
        self._stack, self.database, self.redis, self._processes = stack, database, redis, processes
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-workers-")))
        self._wakes = directory / "wakes"
        self.set_faults(DeliveryFaults())
        self.servers: list[Server] = []
        self._gone: list[Server] = []

    @property
    def ports(self) -> list[int]:
        """Ports of the workers that are alive."""
        return [server.port for server in self.servers]

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the workers that differ from those of the site."""
        mcp = {
            "AUTH": ["oauth", "token", "tests.servers.site.people.anyone"],
            "LIMITS": LIMITS,
            "SERVERS": {"default": {"RESOURCE": RESOURCE, "HEALTHZ": True}},
        }
        layer = {"BACKEND": "channels.layers.InMemoryChannelLayer"}
        if self.redis is not None:
            layer = {"BACKEND": "tests.workers.unreliable_layer.UnreliableLayer", "CONFIG": {"hosts": [self.redis.url]}}
        return {"CHANNEL_LAYERS": {"default": layer}, "MCP": mcp}

    def set_faults(self, faults: DeliveryFaults) -> None:
        """Lose, repeat or delay messages between processes from now on."""
        faults.write(self._wakes)

    def start(self, many: int = 1, *, environ: Mapping[str, str] | None = None) -> None:
        """Start more of them, with more variables of the environment, and wait until they answer."""

        def begin(_: int) -> Server:
            variables = {"SITE_WAKES": str(self._wakes), **(environ or {})}
            how = {"workers": self._processes, "database": self.database, "environ": variables}
            return self._stack.enter_context(serve("uvicorn", settings=self.settings, site=SITE, **how))

        with ThreadPoolExecutor(many) as pool:
            self.servers += pool.map(begin, range(many))

    def stop(self, server: Server, *, kill: bool) -> None:
        """End one as an administrator does, or as the kernel does when memory runs out."""
        self.servers.remove(server)
        self._gone.append(server)
        if kill:
            server.kill()
        else:
            server.terminate()

    def pid(self, port: int) -> int:
        """The process behind a port, where there is one only."""
        found: int = next(server for server in self.servers if server.port == port).probe()["pid"]
        return found

    def event(self, tag: str, what: str) -> dict[str, Any]:
        """The first event of a kind in any worker, waited for."""

        def find() -> list[dict[str, Any]]:
            return [event for server in [*self.servers, *self._gone] for event in server.events(tag, what)]

        wait_until(find, f"{what} of {tag} never happened")
        return find()[0]

    def run(self, code: str) -> str:
        """Run code in a process without a server, as a shell or a task queue does; return its output."""
        ran = subprocess.run(
            [sys.executable, "-c", "import django\ndjango.setup()\n" + textwrap.dedent(code)],
            cwd=ROOT,
            env={
                **environment(self.database, SITE),
                "SITE_SETTINGS": json.dumps(self.settings),
                "SITE_WAKES": str(self._wakes),
                "SITE_EVENTS": str(self._wakes.with_name("events")),
            },
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def complaints(self) -> list[str]:
        """Complaints in the logs of all workers, also of those that have ended."""
        return [line for server in [*self.servers, *self._gone] for line in server.complaints()]


@contextmanager
def workers(database: Database, redis: OwnRedis | None, *, many: int = 2, processes: int = 1) -> Iterator[Workers]:
    """Workers on a database with the site's tables; a Redis of None is a project without a channel layer."""
    with ExitStack() as stack:
        running = Workers(stack, database, redis, processes=processes)
        running.start(many)
        yield running
