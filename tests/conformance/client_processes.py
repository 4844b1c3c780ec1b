"""Processes of the client under test, forked from one that has imported it: `python -m ... DESCRIPTOR`.

The imports take ten times longer than a scenario. The suite starts the clients of all scenarios at once; here a few run
at the same time, and the others wait. DESCRIPTOR is the listening socket that `client_command` connects to.
"""

import json
import os
import signal
import socket
import sys
import traceback

from tests.conformance import client

AT_ONCE = 2
"""Clients that run at the same time."""
LIMIT = 60
"""Seconds that a client has."""
MAX_BYTES = 65_536


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    running: set[int] = set()
    while True:
        if len(running) == AT_ONCE:
            running.remove(os.wait()[0])
        connection, _ = listener.accept()
        process = os.fork()
        if process == 0:
            os._exit(_run(connection))
        running.add(process)
        connection.close()


def _run(connection: socket.socket) -> int:
    """Run the client of a request, and send its status. A client that takes too long is killed."""
    signal.alarm(LIMIT)
    status = 1
    try:
        received, (output, error), *_ = socket.recv_fds(connection, MAX_BYTES, 2)
        while more := connection.recv(MAX_BYTES):
            received += more
        os.dup2(output, 1)
        os.dup2(error, 2)
        request = json.loads(received)
        os.environ.update(request["environment"])
        sys.argv = ["client", request["url"]]
        client.main()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(bytes([status]))
    return status


if __name__ == "__main__":
    main()
