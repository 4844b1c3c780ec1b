"""Names of arguments: hosts accept them, and they depend on nothing else than the names of the operation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.contrib.http_tools.argument_layout import (
    ArgumentValueError,
    build_argument_layout,
    build_argument_names,
)
from mcp_django.contrib.http_tools.filter_descriptions import MAX_DESCRIPTION_CHARACTERS, describe_filters
from mcp_django.server.primitives.decorators import NAME_PATTERN

NAMES = st.lists(st.text(max_size=80) | st.sampled_from(["a[b]", "a_b", "a(b)", "a.b", "$a", "a"]), max_size=12)


def test_a_name_that_hosts_refuse_gets_the_nearest_one(subtests: pytest.Subtests) -> None:
    for original, expected in [
        ("plain_name-1.2", "plain_name-1.2"),
        ("filter[name]", "filter_name"),
        ("page[number]", "page_number"),
        ("$top", "top"),
        ("uids[]", "uids"),
        ("StartTime<", "StartTime_lt"),
        ("StartTime>", "StartTime_gt"),
        ("größe", "grosse"),
        ("Élan vital", "Elan_vital"),
    ]:
        with subtests.test(original=original):
            assert build_argument_names([original]) == {original: expected}


def test_a_name_without_usable_letters_or_with_too_many_gets_a_digest() -> None:
    names = build_argument_names(["尺寸", "$", "x" * 65, "x" * 66])
    assert list(names.values()) == [
        "argument_246df7",
        "argument_09fc96",
        f"{'x' * 57}_9537c5",
        f"{'x' * 57}_6eb879",
    ]


def test_colliding_names_are_made_unique_and_a_valid_one_is_kept() -> None:
    names = build_argument_names(["a[b]", "a_b", "a(b)"])
    assert names["a_b"] == "a_b"
    assert len(set(names.values())) == 3
    assert names["a[b]"].startswith("a_b_")


@given(NAMES)
def test_names_are_valid_unique_and_independent_of_the_order(originals: list[str]) -> None:
    names = build_argument_names(originals)
    assert names.keys() == set(originals)
    assert len(set(names.values())) == len(names)
    assert all(NAME_PATTERN.fullmatch(name) for name in names.values())
    assert build_argument_names(reversed(originals)) == names


@given(NAMES, st.integers(0, 12), st.data())
def test_arguments_return_to_their_own_names(originals: list[str], count: int, data: st.DataObject) -> None:
    filters = [*dict.fromkeys([*originals[:count], *(f"name__l{number}" for number in range(60))])]
    layout = build_argument_layout([*filters, *originals], filters)
    given_arguments = data.draw(st.dictionaries(st.sampled_from([*filters, *originals]), st.integers()))
    assert layout.restore(layout.arrange(given_arguments)) == given_arguments


def test_an_error_names_the_argument_of_the_tool() -> None:
    lookups = [f"name[l{number}]" for number in range(60)]
    layout = build_argument_layout(["x[y]", *lookups], lookups)
    for original, expected in [("x[y]", "x_y[0]: is wrong"), ("name[l1]", "filters.name_l1[0]: is wrong")]:
        with pytest.raises(ArgumentValueError, match=expected.replace("[", r"\[")), layout.translate_errors():
            raise ArgumentValueError(original, "is wrong", "[0]")


def test_filters_of_one_kind_share_a_line() -> None:
    texts = {"type": "array", "items": {"type": "string"}}
    lookups = {f"{name}__{ending}": texts for name in ("name", "serial") for ending in ("ic", "nic")}
    described = describe_filters({**lookups, "name__empty": {"type": "boolean"}, "rack_id": {"type": "integer"}})
    assert described.splitlines()[1:] == [
        "- rack_id (integer)",
        "- name: __empty (boolean); __ic, __nic (list of string)",
        "- serial: __ic, __nic (list of string)",
    ]


def test_a_description_has_a_limit_and_loses_single_descriptions_first() -> None:
    long = {f"filter{number}": {"type": "string", "description": "Long. " * 20} for number in range(100)}
    assert "Long." in describe_filters(dict(list(long.items())[:3]))
    assert describe_filters(long).splitlines()[1:] == [f"- {', '.join(long)} (string)"]
    endless = {f"filter{number}": {"type": "string"} for number in range(2000)}
    assert len(describe_filters(endless)) == MAX_DESCRIPTION_CHARACTERS
