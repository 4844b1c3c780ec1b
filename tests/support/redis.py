"""A Redis of a test's own, which the test may stop and start again."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from tests.support.waiting import WAIT_SECONDS, wait_until


class OwnRedis:
    """A Redis that keeps nothing on disk. It listens on a Unix socket, so its address needs no free port."""

    def __init__(self, directory: Path) -> None:
        self._socket = directory / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address, the same after a restart."""
        return f"unix://{self._socket}?db=0"

    def start(self) -> None:
        """Start it and wait until it answers. Raises AssertionError when it does not."""
        program = shutil.which("redis-server")
        assert program is not None, "install redis-server: these tests restart a Redis of their own"
        options = ["--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no"]
        # It ends with its standard input, so that a test run that was killed leaves none behind.
        script = '"$@" & cat; kill -9 $!'
        self._process = process = subprocess.Popen(
            ["/bin/sh", "-c", script, "redis", program, *options],
            cwd=self._socket.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(lambda: process.poll() is not None or self._answers(), "Redis does not answer")
        assert process.poll() is None, "Redis ended"

    def stop(self) -> None:
        """Kill it, with every connection and subscription it has."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=WAIT_SECONDS)

    def channels(self) -> list[bytes]:
        """The channels that have subscribers."""
        with Redis.from_url(self.url) as client:
            found: list[bytes] = client.pubsub_channels()
        return found

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(WAIT_SECONDS)
                connection.connect(str(self._socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def own_redis() -> Iterator[OwnRedis]:
    """Start a Redis that is gone after the block."""
    with tempfile.TemporaryDirectory(prefix="mcp-redis-") as directory:
        redis = OwnRedis(Path(directory))
        redis.start()
        try:
            yield redis
        finally:
            redis.stop()
