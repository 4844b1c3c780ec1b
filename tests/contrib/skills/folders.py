"""Folders of skills that the tests write, with the files that clients get wrong."""

from pathlib import Path
from typing import Any

from mcp import MCPError

from mcp_django import MCPError as ProtocolError
from mcp_django import Server
from mcp_django.auth.principal import local_principal
from mcp_django.contrib.skills import Skills, SkillsExtension
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.protocol.skills import compute_digest
from tests.client.script import Script
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server

REFUNDS = """---
name: refunds
description: Refund an order, from the request to the money.
license: MIT
compatibility: needs the shop's tools
metadata:
  version: "1.0"
answer: yes
since: 2026-01-01
mode: 0777
octal: 0o17
count: 1_000
nested: {deep: {list: [1, 2.5, null, true]}}
---
# Refunds

Read [the policy](policy.md) first.
"""
FILES: dict[str, bytes] = {
    "refunds/SKILL.md": REFUNDS.encode(),
    "refunds/policy.md": "\ufeffGrüße".encode(),
    "refunds/crlf.txt": b"one\r\ntwo\r\n",
    "refunds/logo.png": b"\x89PNG\r\n\x1a\n\x00\xff",
    "refunds/latin1.txt": b"Gr\xfc\xdfe",
    "refunds/scripts/refund one.py": b"print('refund')\n",
    "refunds/deep/inner/SKILL.md": b"---\r\nname: inner\r\ndescription: Nested.\r\n---\r\nText\r\n",
}
"""The files of two skills, one inside the other."""
FRONTMATTER: dict[str, Any] = {
    "name": "refunds",
    "description": "Refund an order, from the request to the money.",
    "license": "MIT",
    "compatibility": "needs the shop's tools",
    "metadata": {"version": "1.0"},
    "answer": "yes",
    "since": "2026-01-01",
    "mode": 777,
    "octal": 15,
    "count": "1_000",
    "nested": {"deep": {"list": [1, 2.5, None, True]}},
}
REFUNDS_URI = "skill://shop/refunds/SKILL.md"


def write(root: Path, files: dict[str, bytes] | None = None) -> Path:
    """Write files below a folder."""
    for path, data in (FILES if files is None else files).items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root


def write_skill(root: Path, name: str, text: str = "Text") -> None:
    """Write a skill of one file."""
    write(root, {f"{name}/SKILL.md": f"---\nname: {name}\ndescription: About {name}.\n---\n{text}\n".encode()})


def serve(*providers: Any, **given: Any) -> Server:
    """A server with the extension and these providers."""
    return make_server(extensions=[SkillsExtension()], providers=providers, **given)


def connect(root: Path, *, version: str, **options: Any) -> PipelineClient:
    """A client of a server with the skills of a folder."""
    return PipelineClient(serve(Skills(root, prefix="shop", **options)), version=version)


async def list_entries(client: PipelineClient) -> dict[str, dict[str, Any]]:
    """Every entry by its URI, of all pages."""
    entries: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    while True:
        page = await client.request("skills/list", params)
        entries += page["skills"]
        if "nextCursor" not in page:
            return {entry["uri"]: entry for entry in entries}
        params = {"cursor": page["nextCursor"]}


def to_bytes(contents: dict[str, Any]) -> bytes:
    """The bytes of contents as a client gets them back."""
    import base64

    return base64.b64decode(contents["blob"]) if "blob" in contents else contents["text"].encode()


async def verify(client: PipelineClient, entry: dict[str, Any]) -> dict[str, bytes]:
    """Read every file of an entry as a host does, and compare its digest and size."""
    files: dict[str, bytes] = {}
    for file in entry["resources"]:
        result = await client.request("resources/read", {"uri": file["uri"]})
        data = to_bytes(result["contents"][0])
        assert (file["digest"], file["size"]) == (compute_digest(data), len(data)), file
        files[file["uri"]] = data
    return files


def reach(server: Server, era: str, principal: Any = None) -> Script:
    """A target for clients, whose requests this server answers, in memory and over the messages of the SDK."""
    pipeline = PipelineClient(
        server, principal or local_principal(), version=STATELESS if era == "stateless" else HANDSHAKE
    )

    def forward(method: str) -> Any:
        async def answer(params: dict[str, Any]) -> dict[str, Any]:
            rest = {key: value for key, value in params.items() if key != "_meta"}
            try:
                return await pipeline.request(method, rest)
            except ProtocolError as problem:
                raise MCPError(problem.code, problem.message) from None

        return answer

    methods = ["skills/list", "skills/get", "resources/directory/read", "resources/read", "resources/list"]
    methods += ["resources/templates/list"]
    capabilities = server.capabilities(REVISIONS[pipeline.version], streams=True)
    return Script(era, capabilities, **{method.replace("/", "_"): forward(method) for method in methods})
