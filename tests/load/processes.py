"""Processes that a test starts, pauses, kills and starts again, each in a process group of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.databases import ROOT


class GroupProcess:
    """A Python program and its children. All processes of a test append to one log."""

    def __init__(self, arguments: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self.arguments = arguments
        self.environ = dict(environ)
        """Variables of the next start."""
        self._log = log
        self.start()

    def start(self) -> None:
        """Start the program; do not wait until it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self.arguments],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process ID of the leader of the group."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Return True if the leader of the group has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill the whole group."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def terminate(self, seconds: float) -> None:
        """Stop in order, and kill the remaining processes after some seconds."""
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def send(self, sign: signal.Signals) -> None:
        """Send a signal to the whole group, if it still exists."""
        try:
            os.killpg(self.pid, sign)
        except ProcessLookupError:
            pass

    def list_pids(self) -> list[int]:
        """Return the processes of the group."""
        listed = subprocess.run(["ps", "-eo", "pid=,pgid="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        return [int(pid) for pid, group in rows if int(group) == self.pid]
