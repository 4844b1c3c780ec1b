"""The command that the suite starts for each client: `python -I -S client_command.py SOCKET URL`.

It imports nothing of the project, so that it starts at once: `client_processes` forks the client. The client has this
command's standard output and error; the last line of the error has its exit status.
"""

import json
import os
import socket
import sys

ENDED = "The client ended with"


def main() -> int:
    environment = {name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        request = {"url": sys.argv[2], "environment": environment}
        socket.send_fds(server, [json.dumps(request).encode()], [1, 2])
        server.shutdown(socket.SHUT_WR)
        # A client that is killed sends no status.
        status = (server.recv(1) or b"\xff")[0]
    sys.stderr.write(f"\n{ENDED} {status}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
