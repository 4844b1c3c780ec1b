"""The one spelling of a resource's name."""

import pytest

from mcp_django.auth.protected.registry import metadata_url
from mcp_django.auth.resource import ProtectedResource, canonicalize_url

SPELLINGS: list[str] = [
    "https://example.com/mcp",
    "https://example.com/mcp/",
    "HTTPS://EXAMPLE.com/mcp",
    "https://example.com:443/mcp",
    "https://Example.COM:443/mcp/",
]


def test_equivalent_spellings_are_normalized(subtests: pytest.Subtests) -> None:
    for spelling in SPELLINGS:
        with subtests.test(spelling=spelling):
            assert canonicalize_url(spelling) == "https://example.com/mcp"


DISTINCT: list[tuple[str, str]] = [
    ("https://example.com", "https://example.com"),
    ("https://example.com/", "https://example.com"),
    ("http://localhost:8000/mcp", "http://localhost:8000/mcp"),
    ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp"),
    ("http://[0:0:0:0:0:0:0:1]/mcp", "http://[::1]/mcp"),
    ("https://example.com/MCP/Sub", "https://example.com/MCP/Sub"),
]


def test_different_resources_remain_different(subtests: pytest.Subtests) -> None:
    for url, name in DISTINCT:
        with subtests.test(url=url):
            assert canonicalize_url(url) == name


HOSTILE = [
    *(None, 7, "", "mcp", "/mcp", "//example.com/mcp", "ftp://example.com/mcp", "https://", "https:///mcp"),
    *("https://example.com/mcp?a=b", "https://example.com/mcp?", "https://example.com/mcp#a", "https://example.com#"),
    *("https://alice@example.com/mcp", "https://example.com@evil.example/mcp", "https://example.com\\@evil/mcp"),
    *("https://example.com/%6dcp", "https://example.com/a/../mcp", "https://example.com/./mcp"),
    *("https://example.com//mcp", "https://example.com/mcp//", "https://example.com:x/mcp", "https://example.com:/mcp"),
    *("https://example.com:99999/mcp", "https://example.com:0/mcp", "https://exam ple.com/mcp", " https://example.com"),
    *("https://example.com/m\x00cp", "https://example.com/m\ncp", "https://ex\ud800.com/mcp", "https://éxample.com"),
    *("https://[::1/mcp", "https://[evil]/mcp", "https://a..b/mcp", "https://example.com/" + "a" * 3000),
]


def test_an_ambiguous_url_names_no_resource(subtests: pytest.Subtests) -> None:
    for url in HOSTILE:
        with subtests.test(url=url):
            assert canonicalize_url(url) is None


AUDIENCES: list[tuple[str | None, bool]] = [
    ("https://example.com/mcp", True),
    ("https://EXAMPLE.com/mcp/", True),
    (None, False),
    ("default", False),
    ("https://example.com", False),
    ("https://example.com/mcp/sub", False),
    ("https://example.com/mcp2", False),
    ("http://example.com/mcp", False),
    ("https://example.com:8443/mcp", False),
    ("https://evil.example/mcp", False),
]


def test_only_the_exact_resource_matches(subtests: pytest.Subtests) -> None:
    for audience, meant in AUDIENCES:
        with subtests.test(audience=audience):
            assert (
                ProtectedResource(server="default", uri="https://example.com/mcp").matches_audience(audience) is meant
            )


def test_without_a_resource_no_audience_matches() -> None:
    assert not ProtectedResource(server="default").matches_audience("https://example.com/mcp")
    assert not ProtectedResource(server="default").matches_audience(None)


METADATA_URLS: list[tuple[str | None, str | None]] = [
    ("https://example.com", "https://example.com/.well-known/oauth-protected-resource"),
    ("https://example.com/a/mcp", "https://example.com/.well-known/oauth-protected-resource/a/mcp"),
    ("https://example.com?x", None),
    (None, None),
]


def test_metadata_is_found_between_the_host_and_the_path(subtests: pytest.Subtests) -> None:
    for uri, url in METADATA_URLS:
        with subtests.test(uri=uri):
            assert metadata_url(uri) == url
