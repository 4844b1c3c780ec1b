"""Revocation of OAuth clients from the rows of callers, streams and calls."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from mcp_django.contrib.control_room.caller_credentials import load_credentials
from mcp_django.contrib.oauth.flows import consents
from mcp_django.contrib.oauth.models import Consent
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model
from tests.contrib.control_room.pages.test_room import ROOM, RUNNING
from tests.contrib.control_room.pages.test_running_calls import make_long_call, make_process
from tests.contrib.control_room.test_record_admin import log_in
from tests.contrib.control_room.test_rows import make_record, make_usage
from tests.contrib.oauth.oauth_client import MCP, SCOPES, WEB, give_token, make_client

pytestmark = pytest.mark.django_db
REVOKE = "admin:mcp_control_room_controlroom_revoke"


@pytest.fixture
def principal(settings: Any) -> str:
    """Key of a user with an OAuth client, which holds a token."""
    settings.MCP = {"AUTH": ["oauth", "token"], "ORIGIN": "https://testserver", "SCOPES": SCOPES}
    ada = User.objects.create_user("ada")
    application = make_client()
    consents.record_consent(ada, application, [MCP], ["airports:read"], WEB)
    give_token(ada, application, "airports:read")
    return f"django|{ada.pk}|{application.client_id}"


def test_the_access_of_a_client_is_revoked_with_a_permission_after_a_question(principal: str) -> None:
    make_process()
    values = {"principal": principal, "user_key": principal.split("|")[1]}
    make_usage(timezone.now(), **values)
    make_long_call(**values)
    call = make_record(timezone.now(), **values)
    call_page = reverse("admin:mcp_control_room_calllogentry_change", args=[call.pk])
    url = f"{reverse(REVOKE)}?principal={principal.replace('|', '%7C')}"

    browser = log_in("view_controlroom", "view_calllogentry")
    for page in (reverse(ROOM), reverse(RUNNING), call_page):
        assert "/revoke/" not in browser.get(page).content.decode()
    assert browser.post(url).status_code == 403
    User.objects.filter(username="staff").delete()

    browser = log_in("view_controlroom", "view_calllogentry", "revoke_access")
    for page in (reverse(ROOM), reverse(RUNNING), call_page):
        assert f"principal={principal.replace('|', '%7C')}" in browser.get(page).content.decode()
    question = browser.get(url).content.decode()
    assert "Claude, for ada" in question
    assert get_access_token_model().objects.exists()

    assert browser.post(url).status_code == 302
    assert not get_access_token_model().objects.exists()
    assert Consent.objects.get().revoked is not None
    entry = LogEntry.objects.get()
    assert entry.object_repr == f"Claude ({principal})"
    browser.post(url)  # the client has no access any more
    assert LogEntry.objects.count() == 1
    assert "/revoke/" not in browser.get(reverse(ROOM)).content.decode()


def test_principals_without_an_oauth_client_have_no_access_to_revoke(principal: str) -> None:
    _issuer, user, client_id = principal.split("|")
    others: list[Any] = [
        "local",
        f"django|{user}|",
        f"https://idp.example|{user}|{client_id}",
        f"django|{user}|token:1",
        f"django|{user}|other",
        f"django|x|{client_id}",
        f"django|{int(user) + 1}|{client_id}",
    ]
    assert load_credentials(others) == {}
    assert load_credentials([principal])[principal].access is not None
