"""A PostgreSQL cluster of a test's own, which the test may stop and start again."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.support.waiting import WAIT_SECONDS

OPTIONS = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 -c fsync=off"


class OwnPostgres:
    """A cluster without fsync, on a free port. PostgreSQL refuses to run as root, so root starts it as `postgres`."""

    def __init__(self, directory: Path) -> None:
        self._data = directory / "data"
        self._programs = find_programs()
        self._as_user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = int(free.getsockname()[1])

    @property
    def port(self) -> int:
        """Its port on 127.0.0.1, the same after a restart."""
        return self._port

    @property
    def url(self) -> str:
        """Its address, the same after a restart."""
        return f"postgres://postgres@127.0.0.1:{self._port}/postgres"

    def create(self) -> None:
        """Create the files of the cluster."""
        if self._as_user:
            self._data.parent.chmod(0o711)
            self._data.mkdir()
            shutil.chown(self._data, "postgres", "postgres")
        self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync")

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = self._data / "log"
        self._run(
            "pg_ctl", "-l", str(log), "-w", "-t", f"{WAIT_SECONDS:.0f}", "start", "-o", f"-p {self._port} {OPTIONS}"
        )

    def stop(self, mode: str = "immediate") -> None:
        """Stop it at once, as a crash does: connections are lost, and the next start recovers.

        With the mode "fast" it stops in order, as for an upgrade.
        """
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-w", "-t", f"{WAIT_SECONDS:.0f}", "-m", mode, "stop")

    def query(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement and return its rows."""
        url = self.url.removesuffix("postgres") + database
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return [] if cursor.description is None else cursor.fetchall()

    def _run(self, program: str, *arguments: str) -> None:
        run = subprocess.run(
            [str(self._programs / program), "-D", str(self._data), *arguments],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=2 * WAIT_SECONDS,
            **self._as_user,  # type: ignore[call-overload]  # the names of a user and a group
        )
        assert run.returncode == 0, f"{program} failed; see {self._data / 'log'}"


def find_programs() -> Path:
    """Return the directory of the newest PostgreSQL's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    program = str(found[-1]) if found else shutil.which("initdb")
    assert program is not None, "install postgresql: these tests restart a PostgreSQL of their own"
    return Path(program).parent


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """Start a PostgreSQL that is gone after the block."""
    with tempfile.TemporaryDirectory(prefix="mcp-postgres-") as directory:
        postgres = OwnPostgres(Path(directory))
        postgres.create()
        postgres.start()
        try:
            yield postgres
        finally:
            postgres.stop()
