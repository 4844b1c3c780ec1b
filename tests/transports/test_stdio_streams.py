"""The standard streams of a process, taken away from everything else in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, *, unbuffered: bool = False, redirected: str = "") -> subprocess.CompletedProcess[str]:
    """Run `code` after `redirect_standard_streams`, with a line on stdin; `redirected` is for the shell."""
    begin = (
        "import os, subprocess, sys\n"
        "{before}\n"
        "from mcp_django.transports.stdio.redirect import redirect_standard_streams\n"
        "streams = redirect_standard_streams()\n"
        "assert redirect_standard_streams() is streams\n"
    )
    before, _, after = code.rpartition("---\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)
    if unbuffered:
        environment["PYTHONUNBUFFERED"] = "1"
    command = f'exec "$0" -c "$1" {redirected}'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, begin.format(before=before) + after],
        cwd=ROOT,
        env=environment,
        input="from the client\n",
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("unbuffered", [False, True])
def test_only_the_protocol_reaches_stdout(unbuffered: bool) -> None:
    result = run(
        "import ctypes\n"
        "print('print')\n"
        "os.write(1, b'descriptor\\n')\n"
        "sys.__stdout__.write('original\\n')\n"
        "libc = ctypes.CDLL(None); libc.puts(b'from C'); libc.fflush(None)\n"
        "subprocess.run(['echo', 'child'], check=True)\n"
        "os.write(streams.stdout, b'protocol\\n')\n",
        unbuffered=unbuffered,
    )
    assert result.stdout == "protocol\n"
    assert set(result.stderr.split("\n")) == {"print", "descriptor", "original", "from C", "child", ""}


def test_stdin_is_empty_for_other_code() -> None:
    result = run(
        "assert sys.stdin.read() == ''\n"
        "assert subprocess.run(['cat'], capture_output=True, check=True).stdout == b''\n"
        "os.write(streams.stdout, os.read(streams.stdin, 100))\n"
    )
    assert (result.stdout, result.stderr) == ("from the client\n", "")


def test_buffered_prints_of_earlier_code_go_to_stderr() -> None:
    result = run("print('settings are imported')\n---\nos.write(streams.stdout, b'protocol\\n')\n")
    assert (result.stdout, result.stderr) == ("protocol\n", "settings are imported\n")


def test_child_processes_do_not_keep_the_pipes_open() -> None:
    result = run(
        "code = 'import os, sys; [os.fstat(int(number)) for number in sys.argv[1:]]'\n"
        "child = subprocess.run([sys.executable, '-c', code, *map(str, streams)], capture_output=True)\n"
        "assert child.returncode == 1 and b'Bad file descriptor' in child.stderr, child\n"
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_prints_are_discarded_when_stderr_is_closed() -> None:
    result = run("print('lost')\nos.write(streams.stdout, b'protocol\\n')\n", redirected="2>&-")
    assert (result.returncode, result.stdout) == (0, "protocol\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_stream_that_is_closed_is_an_error(closed: str) -> None:
    result = run("", redirected=closed)
    assert result.returncode == 1
    assert "OSError: [Errno 9] Bad file descriptor" in result.stderr
