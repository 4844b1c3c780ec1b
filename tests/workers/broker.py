"""A Redis of the tests' own, which they may take away and bring back."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 15.0


class Redis:
    """A Redis on a free port that keeps nothing on disk."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    @property
    def url(self) -> str:
        """Its address, the same after a restart."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers. Raises AssertionError when it does not."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        # It ends with its standard input, so that a test run that was killed leaves none behind.
        with_us = '"$@" & cat; kill -9 $!'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", with_us, "redis", self._program, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        end = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, "Redis did not come up"
            assert time.monotonic() < end, "Redis does not answer"
            time.sleep(0.01)

    def stop(self) -> None:
        """Take it away at once, with every connection and subscription it has."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate(timeout=PATIENCE)
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def own_redis() -> Iterator[Redis]:
    """Start a Redis that is gone afterwards."""
    program = shutil.which("redis-server")
    assert program is not None, "these tests restart a Redis of their own: install redis-server"
    redis = Redis(program)
    redis.start()
    try:
        yield redis
    finally:
        redis.stop()
