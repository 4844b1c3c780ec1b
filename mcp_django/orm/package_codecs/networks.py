"""Codecs of network addresses: the field classes of NetBox and of django-netfields.

A shown value is a text such as `10.0.0.0/8`, and so is the operand of a lookup.
"""

from dataclasses import replace
from typing import Any

from django.core.exceptions import ValidationError

from mcp_django.orm.codecs.codec import (
    COMPARABLE_LOOKUPS,
    COUNT_AGGREGATES,
    RANGE_AGGREGATES,
    TEXT_LOOKUPS,
    Codec,
    Convert,
    to_plain_text,
)
from mcp_django.orm.codecs.parsing import parse_text_value
from mcp_django.orm.codecs.registry import register_codec

MAX_PREFIX_LENGTH = 128
_NETWORK_LOOKUPS = dict.fromkeys(
    (
        *("net_contained", "net_contained_or_equal", "net_contains", "net_contains_or_equals", "net_overlaps"),
        *("net_host_contained", "net_host"),
    ),
    "value",
)


@register_codec("ipam.fields.BaseIPField", "netfields.fields.InetAddressField", "netfields.fields.CidrAddressField")
def build_network_codec(field: Any) -> Codec:
    """Build the codec of a column of PostgreSQL's `inet` or `cidr`."""
    codec = _build_address_codec(field, _NETWORK_LOOKUPS)
    lookups = {**codec.lookups, "net_in": _create_list_parser(codec.decode)}
    lookups |= dict.fromkeys(("net_mask_length", "prefixlen", "family"), _parse_small_number)
    return replace(codec, lookups=lookups)


@register_codec("dcim.fields.MACAddressField", "dcim.fields.WWNField", "netfields.fields.MACAddressField")
def build_mac_address_codec(field: Any) -> Codec:
    """Build the codec of a hardware address."""
    return replace(_build_address_codec(field, {}), kind="mac-address", aggregates=COUNT_AGGREGATES)


def _build_address_codec(field: Any, lookups: dict[str, str]) -> Codec:
    def decode(value: Any) -> str:
        try:
            prepared = field.get_prep_value(field.to_python(parse_text_value(value)))
        except (ValidationError, TypeError, ValueError):
            prepared = None
        if prepared is None:
            raise ValueError("not an address of this field")
        return str(prepared)

    return Codec(
        kind="ip-address",
        schema={"type": "string"},
        encode=to_plain_text,
        decode=decode,
        # PostgreSQL compares these columns by its own order. Texts compare the shown value.
        lookups=COMPARABLE_LOOKUPS | _own_text_lookups(field) | lookups,
        aggregates=RANGE_AGGREGATES,
    )


def _own_text_lookups(field: Any) -> dict[str, str]:
    """Return the text lookups that the class of the field defines; Django's own do not fit such a column."""
    classes = [cls for cls in type(field).__mro__ if not cls.__module__.startswith("django.")]
    own = [cls.__dict__.get("class_lookups", {}) for cls in classes]
    return {name: operand for name, operand in TEXT_LOOKUPS.items() if any(name in lookups for lookups in own)}


def _create_list_parser(decode: Convert) -> Convert:
    def parse(value: Any) -> list[Any]:
        if type(value) is not list or len(value) > 200:
            raise ValueError("give a list of at most 200 addresses")
        return [parse_text_value(item) for item in value if decode(item)]

    return parse


def _parse_small_number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_PREFIX_LENGTH:
        raise ValueError(f"give an integer from 0 to {MAX_PREFIX_LENGTH}")
    return value
