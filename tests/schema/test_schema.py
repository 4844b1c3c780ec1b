"""The package as a whole: its exports and its imports."""

import subprocess
import sys

import pytest

import mcp_django.schema


def test_the_public_names_are_listed_in_order() -> None:
    assert sorted(mcp_django.schema.__all__) == mcp_django.schema.__all__
    assert all(hasattr(mcp_django.schema, name) for name in mcp_django.schema.__all__)


@pytest.mark.integration
def test_msgspec_is_imported_by_its_users_only() -> None:
    code = "import sys, mcp_django.schema as s; s.to_json([1]); s.build_form(int); print('msgspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
