"""A process of a peer that makes one check after another.

The checks share a process, because its imports take longer than a check. It reads the arguments of each check
as a line of JSON from standard input, and writes a line of JSON to standard output: `said`, or `failed` with the
reason.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 120
"""Seconds for one check."""


class Failed(Exception):
    """A check of a peer failed. The text has the reason that the peer gave."""


class PeerProcess:
    """A process that makes checks, and starts with the first one.

    The process has a home directory of its own, so that it does not find the settings of the user. The check after a
    failed one starts a new process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None

    def check(self, command: list[str], *arguments: str) -> str:
        """Return the summary of a check. Raises Failed with the reason of a failure."""
        with self._lock:
            process = self._process or self._start(command)
            assert process.stdin is not None
            assert process.stdout is not None
            timer = threading.Timer(LIMIT, process.kill)
            timer.start()
            try:
                process.stdin.write(json.dumps(arguments) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            finally:
                timer.cancel()
            outcome = json.loads(line or '{"failed": "it ended or took too long"}')
            if "failed" not in outcome:
                return str(outcome["said"]).strip()
            self._stop()
        raise Failed(f"{Path(command[1]).name}: {outcome['failed']}")

    def stop(self) -> None:
        """Stop the process if it runs."""
        with self._lock:
            self._stop()

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        self._home = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
            cwd=ROOT,
            env={**os.environ, "HOME": self._home.name},
        )
        return self._process

    def _stop(self) -> None:
        if self._process is not None and self._home is not None:
            self._process.kill()
            self._process.communicate()
            self._home.cleanup()
        self._process = self._home = None
