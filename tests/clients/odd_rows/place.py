"""The site of odd rows, and the official clients that read each row by each way."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.clients import peers
from tests.clients.peers import Calls, Target
from tests.clients.places import Place
from tests.composed.harness import Process
from tests.support.ports import take_port

READERS = tuple(
    peer for peer in peers.PEERS if peer.name.startswith(("mcp 1", "mcp 2", "TypeScript")) and "http" in peer.ways
)


@contextmanager
def odd_rows() -> Iterator[Place]:
    """Run the site, whose results all of the readers have to accept."""
    with tempfile.TemporaryDirectory(prefix="mcp-odd-rows-") as directory:
        port = take_port()
        command = [sys.executable, "-m", "tests.clients.odd_rows.serve", str(port)]
        site = Process(command, port, {"ODD_ROWS_DATABASE": f"{directory}/odd_rows.sqlite3"})
        try:
            site.launch(speaks=True)
            site.wait()
            plan = json.loads(site.first_line)
            readers = tuple(peer._replace(ways=("http",), run=partial(_read, peer.run, plan)) for peer in READERS)
            yield Place("odd rows", {"http": f"http://127.0.0.1:{port}/mcp"}, readers)
        finally:
            site.end()


def _read(run: Callable[..., str], plan: Any, way: str, target: Target, calls: Calls) -> str:
    return run(way, target, plan)
