"""The examples of docs/expose/stored.md run."""

from typing import Any

import pytest
from django.test import override_settings

from mcp_django import wiring
from mcp_django.models import StoredPrompt
from mcp_django.models.stored import base, prompt, resource
from mcp_django.providers.stored import MAX_RENDERED_CHARACTERS
from tests.repository.pages import ROOT, python_blocks

PAGE = ROOT / "docs" / "expose" / "stored.md"


@pytest.mark.django_db
def test_the_example_writes_a_prompt_and_versions() -> None:
    block = next(block for block in python_blocks(PAGE) if "StoredPrompt" in block)
    names: dict[str, Any] = {}
    exec(compile(block, PAGE.name, "exec"), names)
    row = StoredPrompt.objects.get()
    assert (names["version"].note, names["version"].data) == ("Set up", row.snapshot())


def test_the_example_switches_it_off() -> None:
    block = next(block for block in python_blocks(PAGE) if "STORED" in block)
    names: dict[str, Any] = {}
    exec(compile(block, PAGE.name, "exec"), names)
    with override_settings(MCP=names["MCP"]):
        assert wiring.get_server().providers
        assert not wiring.get_server("internal").providers


def test_the_limits_are_those_of_the_page(subtests: pytest.Subtests) -> None:
    for what, limit in [
        ("A URI |", resource.MAX_URI_CHARS),
        ("A description |", base.MAX_DESCRIPTION_CHARS),
        ("Arguments of a prompt |", prompt.MAX_ARGUMENTS),
        ("with", prompt.MAX_CHOICES),
        ("Messages of a prompt |", prompt.MAX_MESSAGES),
        ("with", prompt.MAX_MESSAGE_CHARS),
        ("embedded resources included |", MAX_RENDERED_CHARACTERS),
        ("A resource's text |", resource.MAX_TEXT_CHARS),
        ("A resource's file |", resource.MAX_FILE_BYTES // 1024**2),
        ("Versions of a row |", base.MAX_VERSIONS),
    ]:
        with subtests.test(what=what, limit=limit):
            assert f"{what} {limit:,}" in PAGE.read_text().replace(" 1048576", " 1,048,576")
