"""The address of a client, from the headers of known proxies only."""

import pytest

from mcp_django.auth.requests import UNKNOWN_ADDRESS, get_client_address
from mcp_django.protocol.headers import Headers


def make_headers(*values: bytes) -> Headers:
    return Headers([(b"host", b"example.com"), *((b"x-forwarded-for", value) for value in values)])


def test_without_proxies_forwarding_headers_are_ignored() -> None:
    assert get_client_address("198.51.100.7", make_headers(b"203.0.113.9")) == "198.51.100.7"


def test_behind_unknown_proxies_clients_have_no_address(subtests: pytest.Subtests) -> None:
    for peer in ("10.0.0.2", "127.0.0.1", "fd00::1", "192.168.1.1", "testclient"):
        with subtests.test(peer=peer):
            assert get_client_address(peer, make_headers(b"203.0.113.9"), 0) == UNKNOWN_ADDRESS


FORWARDED: list[tuple[bytes, int, str]] = [
    (b"203.0.113.9", 1, "203.0.113.9"),
    (b"192.0.2.66, 203.0.113.9", 1, "203.0.113.9"),
    (b"192.0.2.1, 192.0.2.2, 203.0.113.9, 10.0.0.1", 2, "203.0.113.9"),
    (b"203.0.113.9:5000", 1, "203.0.113.9"),
    (b"::ffff:203.0.113.9", 1, "203.0.113.9"),
    (b"2001:db8:1:2:3:4:5:6", 1, "2001:db8:1:2::/64"),
    (b"[2001:db8:1:2::9]:443", 1, "2001:db8:1:2::/64"),
    (b"203.0.113.9", 3, "203.0.113.9"),
]


def test_the_number_of_proxies_counts_entries_from_the_end(subtests: pytest.Subtests) -> None:
    for value, proxies, address in FORWARDED:
        with subtests.test(value=value):
            assert get_client_address("10.0.0.2", make_headers(value), proxies) == address


def test_several_headers_are_one_list() -> None:
    assert get_client_address("10.0.0.2", make_headers(b"192.0.2.66", b"203.0.113.9"), 1) == "203.0.113.9"
    assert get_client_address("10.0.0.2", make_headers(b"203.0.113.9, 192.0.2.1", b"10.0.0.1"), 2) == "192.0.2.1"


def test_values_that_are_no_address_are_ignored(subtests: pytest.Subtests) -> None:
    for value in (b"", b"unknown", b"_hidden", b"\xff\xfe", b"9" * 5000, b"1.2.3", b"'; drop"):
        with subtests.test(value=value):
            assert get_client_address("10.0.0.2", make_headers(value), 1) == "10.0.0.2"


def test_callers_without_an_address_share_one_key() -> None:
    assert get_client_address(None, None) == get_client_address("", make_headers(b"192.0.2.1")) == UNKNOWN_ADDRESS


def test_addresses_of_one_ipv6_network_share_one_key() -> None:
    assert get_client_address("2001:db8::1", None) == get_client_address("2001:db8::ffff:1", None)
