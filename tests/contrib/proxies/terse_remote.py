"""A server in a process that starts at once, and has no more than it takes to be killed in a call."""

import json
import os
import sys
from typing import Any

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("pid", "hang_up")]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        capabilities = {"tools": {}, "logging": {}}
        info = {"name": "terse", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call" and params["name"] == "hang_up":
        os._exit(1)
    return {"content": [{"type": "text", "text": str(os.getpid())}]} if method == "tools/call" else {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()
