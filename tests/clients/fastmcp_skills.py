"""Read and verify skills with the client of FastMCP 4.2, and write them to files.

`python fastmcp_skills.py URL SKILL_URI ...` runs in an environment with that client, without the package. The client
reads YAML 1.1, so the caller names only skills whose values are quoted.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from fastmcp import Client  # type: ignore[import-not-found]
from fastmcp.skills import SkillsClientExtension  # type: ignore[import-not-found]


async def main(url: str, uris: list[str]) -> str:
    client: Any = Client(url, extensions=[SkillsClientExtension()])
    async with client:
        listed = {str(skill.uri) for skill in (await client.list_skills_mcp()).skills}
        written = 0
        for uri in uris:
            assert uri in listed, f"{uri} is not among {listed}"
            skill = await client.read_skill(uri)
            with tempfile.TemporaryDirectory() as directory:
                skill.to_directory(Path(directory) / skill.name)
                written += sum(path.is_file() for path in Path(directory).rglob("*"))
    return f"{len(listed)} skills, {written} files written"


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(main(sys.argv[1], sys.argv[2:])))
