"""The processes of the composed project: the project, the remote and the API."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.__main__ import listens
from tests.support.ports import take_port
from tests.support.waiting import WAIT_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = Path(__file__).parent / "document.json"


@dataclass
class Process:
    """A server in a process of its own, at a port."""

    command: Sequence[str]
    port: int
    environment: dict[str, str] = field(default_factory=dict)
    running: "subprocess.Popen[str] | None" = None
    first_line: str = ""

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.launch()
        self.wait()

    def launch(self, *, speaks: bool = False) -> None:
        """Start it. If it `speaks`, `wait` reads its first line."""
        self.running = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if speaks else subprocess.DEVNULL,
            text=True,
        )

    def wait(self) -> None:
        """Until it listens."""
        assert self.running is not None
        if self.running.stdout is not None:
            self.first_line = self.running.stdout.readline()
        wait_until(lambda: self._has_ended() or listens(self.port), f"{self.command} did not come up")
        assert not self._has_ended(), f"{self.command} ended"

    def _has_ended(self) -> bool:
        return self.running is None or self.running.poll() is not None

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal, and wait until it has gone."""
        if self.running is not None:
            self.running.send_signal(number)
            self.running.communicate(timeout=WAIT_SECONDS)
            self.running = None


@dataclass
class Site:
    """The project as its clients see it."""

    url: str
    tokens: dict[str, str]
    remote: Process
    api: str

    def headers(self, user: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[user]}"}


def python_remote(port: int) -> list[str]:
    """The remote on Python's SDK."""
    return [sys.executable, "-m", "tests.composed.remote", str(port)]


@contextmanager
def composed(*, remote: Callable[[int], Sequence[str]] = python_remote, document: Path = DOCUMENT) -> Iterator[Site]:
    """All processes, running. `remote` gives the command of a remote for a port; it is reached through the API, which
    records the requests.
    """
    at_remote, at_api, at_site = take_port(), take_port(), take_port()
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="mcp-composed-"))
        upstream = Process(remote(at_remote), at_remote)
        api = Process(
            [sys.executable, "-m", "tests.composed.api", str(at_api), f"http://127.0.0.1:{at_remote}/mcp"], at_api
        )
        places = {
            "remote": f"http://127.0.0.1:{at_api}/mcp",
            "api": f"http://127.0.0.1:{at_api}",
            "document": str(document),
        }
        settings = {"COMPOSED": json.dumps(places), "COMPOSED_DATABASE": str(Path(directory) / "composed.sqlite3")}
        site = Process([sys.executable, "-m", "tests.composed.serve", str(at_site)], at_site, settings)
        for process in (upstream, api, site):
            # Both have open streams without a reader; the project must end nevertheless.
            stack.callback(process.end, signal.SIGTERM if process is site else signal.SIGKILL)
            process.launch(speaks=process is site)
        for process in (upstream, api, site):
            process.wait()
        tokens = json.loads(site.first_line)
        yield Site(f"http://127.0.0.1:{at_site}/mcp", tokens, upstream, places["api"])
