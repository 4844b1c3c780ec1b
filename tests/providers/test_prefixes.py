"""The names of primitives of another source in this server."""

import pytest

from mcp_django.protocol.uri import MAX_URI_LENGTH, UriTemplate
from mcp_django.providers.prefixes import MAX_NAME_CHARACTERS, InvalidPrefixedName, NamePrefixes
from mcp_django.schema import DeclarationError


def test_a_prefixed_name_can_be_resolved() -> None:
    naming = NamePrefixes("weather")
    assert naming.name("forecast") == "weather__forecast"
    assert naming.own_name("weather__forecast") == "forecast"


def test_a_name_without_the_prefix_is_of_another_source(subtests: pytest.Subtests) -> None:
    for name in ["forecast", "weather_forecast", "weather__", "other__forecast", "weather"]:
        with subtests.test(name=name):
            assert NamePrefixes("weather").own_name(name) is None


def test_without_a_prefix_names_are_unchanged() -> None:
    assert NamePrefixes().name("forecast") == NamePrefixes().own_name("forecast") == "forecast"


def test_a_declared_name_has_as_many_characters_as_clients_take() -> None:
    naming = NamePrefixes("a" * 10)
    assert len(naming.name("b" * 52)) == 64
    with pytest.raises(InvalidPrefixedName, match="1 to 64"):
        naming.name("b" * 53)


def test_a_foreign_name_has_as_many_characters_as_the_specification_allows() -> None:
    naming = NamePrefixes("a" * 10)
    assert len(naming.name("b" * 116, foreign=True)) == MAX_NAME_CHARACTERS
    with pytest.raises(InvalidPrefixedName, match="1 to 128"):
        naming.name("b" * 117, foreign=True)


def test_an_invalid_name_is_refused(subtests: pytest.Subtests) -> None:
    for name in ["", "a b", "ä", "a/b", "a\nb", "a\0b"]:
        with subtests.test(name=name), pytest.raises(InvalidPrefixedName):
            NamePrefixes().name(name, foreign=True)


def test_a_refused_name_is_truncated_in_the_message() -> None:
    with pytest.raises(InvalidPrefixedName) as problem:
        NamePrefixes("a").name("b" * 100_000, foreign=True)
    assert len(str(problem.value)) < 300


def test_an_invalid_prefix_is_refused(subtests: pytest.Subtests) -> None:
    for prefix in ["_a", "a_", "a__b", "a b", "ä", "a/b", "__", "a\n"]:
        with subtests.test(prefix=prefix), pytest.raises(DeclarationError, match="prefix"):
            NamePrefixes(prefix)


def test_without_a_uri_prefix_uris_are_unchanged() -> None:
    assert NamePrefixes("weather").uri("city://zurich") == "city://zurich"
    assert NamePrefixes("weather").own_uri("city://zurich") == "city://zurich"


def test_a_prefixed_uri_can_be_resolved() -> None:
    naming = NamePrefixes("weather", "weather")
    assert naming.uri("city://zurich") == "weather+city://zurich"
    assert naming.own_uri("weather+city://zurich") == "city://zurich"
    assert naming.own_uri("city://zurich") is None


def test_a_prefixed_template_matches_prefixed_uris() -> None:
    naming, template = NamePrefixes("w", "w"), UriTemplate("city://{name}{?unit}")
    here = naming.template(template)
    assert here.text == "w+city://{name}{?unit}"
    assert here.match(naming.uri("city://bern?unit=c")) == {"name": "bern", "unit": "c"}
    assert here.match("city://bern") is None


def test_a_template_without_a_prefix_is_the_same_one() -> None:
    template = UriTemplate("city://{name}")
    assert NamePrefixes("w").template(template) is template


def test_a_uri_prefix_that_begins_no_scheme_is_refused(subtests: pytest.Subtests) -> None:
    for prefix in ["", "1a", "a+b", "a:b", "a/b", "ä"]:
        with subtests.test(prefix=prefix), pytest.raises(DeclarationError, match="URI prefix"):
            NamePrefixes("w", prefix)


def test_a_uri_without_a_scheme_is_refused(subtests: pytest.Subtests) -> None:
    for uri in ["", "zurich", "//zurich", "a" * MAX_URI_LENGTH]:
        with subtests.test(uri=uri), pytest.raises(InvalidPrefixedName):
            NamePrefixes("w", "w").uri(uri)


def test_a_uri_that_becomes_too_long_is_refused() -> None:
    with pytest.raises(InvalidPrefixedName, match="characters"):
        NamePrefixes("w", "w").uri("city://" + "a" * (MAX_URI_LENGTH - 8))


def test_pages_of_apps_keep_their_scheme() -> None:
    naming = NamePrefixes("weather", "weather")
    assert naming.uri("ui://shop/cart.html") == "ui://weather+shop/cart.html"
    assert naming.own_uri("ui://weather+shop/cart.html") == "ui://shop/cart.html"
    assert naming.own_uri("ui://other+shop/cart.html") is None
    assert naming.own_uri("weather+city://zurich") == "city://zurich"
    assert naming.template(UriTemplate("ui://shop/{name}")).text == "ui://weather+shop/{name}"
