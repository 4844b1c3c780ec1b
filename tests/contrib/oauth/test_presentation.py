"""How clients, and the places they send people to, are shown."""

import pytest
from django.contrib.auth.models import User

from mcp_django.contrib.oauth.clients.display import (
    build_client_display,
    get_ascii_host,
    get_redirect_hosts,
    get_redirect_target,
)
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.toolkit_compat import get_application_model
from tests.contrib.oauth.oauth_client import DOCUMENT, WEB, Source, make_client

NAMES: list[tuple[str, str]] = [
    ("Claude", "Claude"),
    ("  two\n\tlines  ", "two lines"),
    ("Goo\u202egle", "Google"),
    ("Zero\u200bwidth\u2066", "Zerowidth"),
    ("\x00\x1b[31mred", "[31mred"),
    ("\ud800half", "half"),
    ("n" * 200, "n" * 79 + "…"),
    ("日本語", "日本語"),
]


def test_a_name_is_shown_in_one_line_of_visible_characters(subtests: pytest.Subtests) -> None:
    application = get_application_model()(client_id="c")
    for name, shown in NAMES:
        with subtests.test(name=name):
            application.name = name
            assert build_client_display(application).name == shown


def test_a_host_with_letters_of_another_alphabet_is_shown_in_punycode() -> None:
    assert get_ascii_host("https://\u0441laude.ai/client") == "xn--laude-0ye.ai"
    assert get_ascii_host("https://claude.ai/client") == "claude.ai"
    assert get_ascii_host("https://[/") == ""
    assert get_ascii_host("nothing") == ""


TARGETS: list[tuple[str, str, str, str]] = [
    ("https://claude.ai/api/cb", "web", "claude.ai", "https://claude.ai"),
    ("https://claude.ai:8443/cb?x=1", "web", "claude.ai:8443", "https://claude.ai:8443"),
    ("http://127.0.0.1:33418/", "loopback", "127.0.0.1:33418", "http://127.0.0.1:33418"),
    ("http://localhost:1/cb", "loopback", "localhost:1", "http://localhost:1"),
    ("http://[::1]:99/cb", "loopback", "[::1]:99", "http:"),
    ("cursor://anysphere.cursor-mcp/oauth/callback", "app", "cursor:", "cursor:"),
    ("com.example.app:/cb", "app", "com.example.app:", "com.example.app:"),
    ("https://a.example;script-src */cb", "web", "a.example;script-src *", "https:"),
]


def test_a_redirect_target_is_shown_by_its_destination(subtests: pytest.Subtests) -> None:
    for uri, kind, host, source in TARGETS:
        with subtests.test(uri=uri):
            target = get_redirect_target(uri)
            assert (target.kind, target.host, target.source) == (kind, host, source)
            assert target.is_local is (kind != "web")


def test_loopback_targets_count_as_one() -> None:
    uris = ["http://127.0.0.1:1/a", "http://localhost/b", "https://a.example/1", "https://a.example/2", "cursor://x/y"]
    assert get_redirect_hosts(uris) == ["a.example", "cursor:", "this computer"]


@pytest.mark.django_db
def test_only_a_document_verifies_a_host() -> None:
    assert build_client_display(make_client(source=Source.DOCUMENT)).host == "client.example"
    registered = build_client_display(make_client(source=Source.REGISTERED))
    assert (registered.host, registered.vouched, registered.initial) == ("", False, "C")


@pytest.mark.django_db
def test_an_approved_or_manual_client_is_vouched_for() -> None:
    assert build_client_display(make_client(approved=True)).vouched
    assert build_client_display(make_client(source=Source.MANUAL)).vouched


@pytest.mark.django_db
def test_a_manual_client_of_a_user_who_is_not_staff_is_not_vouched_for() -> None:
    application = make_client(source=Source.MANUAL)
    application.user = User.objects.create_user("mallory")
    assert not build_client_display(application).vouched
    application.user.is_staff = True
    assert build_client_display(application).vouched


@pytest.mark.django_db
def test_a_client_without_a_profile_or_a_name_is_shown_too() -> None:
    application = make_client(WEB, name="\u200b")
    ClientProfile.objects.filter(application=application).delete()
    application.refresh_from_db()
    shown = build_client_display(application)
    assert (shown.name, shown.initial, shown.host) == ("An application without a name", "A", "")
    assert shown.id != DOCUMENT
