"""The page on identity providers shows valid settings, and lists all of them."""

import ast
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from mcp_django import conf
from mcp_django.conf.issuers import ALGORITHMS, ClaimNames, IssuerSettings
from mcp_django.wiring import get_services
from mcp_django.wiring.authentication import build_external_verifier

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protect" / "identity-provider.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ENTRIES = [block for block in BLOCKS if block.startswith("{")]


def table(after: str) -> dict[str, str]:
    """The rows of the first table after a text: the keys of the first cell, with the second."""
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \|", PAGE[PAGE.index(after) :].split("\n\n##")[0], re.MULTILINE)
    return {key: cell for keys, cell in rows for key in keys.split("`, `")}


def test_the_first_example_is_sufficient() -> None:
    made: dict[str, Any] = {}
    exec(BLOCKS[0], made)
    with override_settings(MCP=made["MCP"]):
        verifier = build_external_verifier(get_services())
        assert conf.issuers() == ("https://id.example.com/realms/shop",)
        assert not verifier.accepts("opaque")


def test_the_entries_of_providers_are_valid_settings(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for number in range(len(ENTRIES)):
        with subtests.test(number=number):
            monkeypatch.setitem(os.environ, "INTROSPECTION_SECRET", "secret")
            entry = eval(ENTRIES[number], {"os": os})
            with override_settings(MCP={"AUTH": "external", "ISSUERS": [entry]}):
                assert conf.get_problems() == []
                assert conf.issuers() == (entry["ISSUER"],)
            assert len(ENTRIES) == 5


def test_every_key_is_listed_with_its_default() -> None:
    listed = table("## Settings of an entry") | {"CLAIMS": ""}
    defaults = {option.name.upper(): option for option in fields(IssuerSettings)}
    claims = {option.name.upper() for option in fields(ClaimNames)}
    assert listed.keys() == defaults.keys() | claims | {"SCOPES"}
    for key in ("ALGORITHMS", "REQUIRE_TYPE", "LEEWAY", "REQUIRE_USER", "CLIENT_AUTH", "INTROSPECTION_CACHE"):
        said, is_ = ast.literal_eval(listed[key].strip("`")), defaults[key].default
        assert said == (list(is_) if isinstance(is_, tuple) else is_)
    named = set(re.findall(r"\b(?:[RPE]S\d{3}|EdDSA)\b", PAGE[PAGE.index("| `ALGORITHMS`") :].splitlines()[0]))
    assert named == set(ALGORITHMS)
