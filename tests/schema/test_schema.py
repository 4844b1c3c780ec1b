"""The room as a whole: what it exports, what it imports, and how it scales."""

import subprocess
import sys
import time

import mcp_django.schema
from mcp_django.schema import output_of, parameters_of


def test_the_public_names_are_listed_in_order() -> None:
    assert sorted(mcp_django.schema.__all__) == mcp_django.schema.__all__
    assert all(hasattr(mcp_django.schema, name) for name in mcp_django.schema.__all__)


def test_msgspec_is_imported_by_its_users_only() -> None:
    code = "import sys, mcp_django.schema as s; s.to_json([1]); s.form_of(int); print('msgspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_many_tools_are_compiled_in_little_time() -> None:
    def search(query: str, limit: int = 5, tags: list[str] | None = None, exact: bool = False) -> list[dict[str, str]]:
        """Search.

        Args:
            query: What for.
        """
        raise NotImplementedError

    started = time.perf_counter()
    for _ in range(200):
        parameters_of(search, is_injected=lambda annotation: False)
        output_of(search, is_content=lambda annotation: False)
    assert time.perf_counter() - started < 10, "five times what 200 tools may take on a slow machine"
