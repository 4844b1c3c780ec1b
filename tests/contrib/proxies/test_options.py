"""`PROXIES` in the setting: valid and invalid options, and the proxies that are made."""

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import conf
from mcp_django.conf.proxies import ProxySettings
from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.options import ProxyOptions, deny_everyone
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives.base import Rate
from mcp_django.wiring import get_server
from tests.repository.pages import ROOT, python_blocks

CLIENTS = {"weather": {"URL": "https://weather.example/mcp"}, "github": {"URL": "https://api.example/mcp"}}
PAGE = ROOT / "docs" / "expose" / "proxies.md"


def setting(proxies: Any, **more: Any) -> dict[str, Any]:
    return {"AUTH": "none", "CLIENTS": CLIENTS, "SERVERS": {"default": {"PROXIES": proxies}}, **more}


def read_error(proxies: Any) -> str:
    with override_settings(MCP=setting(proxies)), pytest.raises(ImproperlyConfigured) as caught:
        conf.get_settings()
    return str(caught.value)


def proxies_of(proxies: Any) -> dict[str, Proxy]:
    with override_settings(MCP=setting(proxies)):
        return {provider.name: provider for provider in get_server().providers if isinstance(provider, Proxy)}


def test_a_list_of_aliases_denies_everyone_by_default() -> None:
    proxies = proxies_of(["weather", "github"])
    assert [proxy.naming.prefix for proxy in proxies.values()] == ["weather", "github"]
    assert proxies["weather"].options.effective_permission is deny_everyone


def test_every_option_reaches_the_proxy() -> None:
    options = {
        "PREFIX": "w",
        "URI_PREFIX": "far",
        "SCOPES": ["weather"],
        "RATE": "5/m",
        "FEATURES": ["tools"],
        "STALE_TTL": 0,
    }
    proxy = proxies_of({"weather": options})["weather"]
    assert (proxy.naming.prefix, proxy.naming.uri_prefix, proxy.offers) == ("w", "far", {"tools"})
    assert (proxy.options.effective_permission, proxy.options.parsed_rate, proxy.options.stale_ttl) == (
        None,
        Rate(5, 60),
        0.0,
    )


def test_the_setting_and_the_proxy_have_the_same_options_and_defaults() -> None:
    assert ProxyOptions(**ProxySettings().options()) == ProxyOptions()


def test_invalid_options_are_refused_by_name(subtests: pytest.Subtests) -> None:
    for proxies, said in [
        ({"wether": {}}, 'names no entry of MCP["CLIENTS"]'),
        ({"weather": {"PREFIX": "a__b"}}, '["PREFIX"] must have letters'),
        ({"weather": {"PERMISSION": "everybody"}}, '["PERMISSION"] must be a permission'),
        ({"weather": {"FEATURES": ["tool"]}}, '["FEATURES"] must be one of'),
        ({"weather": {"CLIENT_FEATURES": "sampling"}}, '["CLIENT_FEATURES"] must be a list'),
        ({"weather": {}, "github": {"PREFIX": "weather"}}, "is already used by 'weather'"),
        ("weather", "must be a dict"),
    ]:
        with subtests.test(proxies=proxies, said=said):
            assert said in read_error(proxies)


def test_an_unknown_option_is_reported() -> None:
    with override_settings(MCP=setting({"weather": {"PERMISION": "any"}})):
        (problem,) = conf.get_problems()
    assert (problem.unknown, problem.suggestion) == (True, "PERMISSION")


def test_a_missing_function_is_refused_with_its_path() -> None:
    proxies = {"weather": {"CREDENTIALS": "tests.nowhere.headers"}}
    told = pytest.raises(ImproperlyConfigured, match=r'PROXIES"\]\["weather"\]')
    with override_settings(MCP=setting(proxies)), told:
        get_server()


def test_an_invalid_source_is_refused() -> None:
    with pytest.raises(TypeError, match="an alias"):
        Proxy(7)
    with pytest.raises(TypeError, match="unexpected"):
        Proxy("weather", permision="any")
    with override_settings(MCP=setting([])), pytest.raises(DeclarationError, match="prefix"):
        Proxy("weather", prefix="a b")


def test_the_page_documents_every_option() -> None:
    text = Path(PAGE).read_text(encoding="utf-8")
    described = {name.upper() for name in ProxySettings.__slots__}
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert {name.strip(" `") for row in rows for name in row.split(",")} == described


def test_the_examples_of_the_page_work() -> None:
    first, second, third = python_blocks(PAGE)
    said: dict[str, Any] = {}
    exec(first, said)
    with override_settings(MCP=said["MCP"]):
        assert conf.get_problems() == []
        assert [provider.name for provider in get_server().providers if isinstance(provider, Proxy)] == [
            "weather",
            "github",
        ]
    exec(second, said)
    assert [repr(provider) for provider in said["server"].providers] == ["<Proxy 'weather'>"]
    exec(third, said)

    class Caller:
        user = type("User", (), {"weather_key": "k"})()

    assert said["headers"](Caller()) == {"X-Api-Key": "k"}


def test_a_string_in_place_of_a_list_is_refused(subtests: pytest.Subtests) -> None:
    for name in ["scopes", "allow", "deny", "features", "client_features"]:
        with subtests.test(name=name), pytest.raises(DeclarationError, match=rf"write {name}=\['get_\*'\]"):
            Proxy("weather", **{name: "get_*"})


def test_unknown_features_are_refused(subtests: pytest.Subtests) -> None:
    for name in ["features", "client_features"]:
        with subtests.test(name=name), pytest.raises(DeclarationError, match=f"{name} contains 'tool'; use values of"):
            Proxy("weather", **{name: ["tool"]})
