"""Acts of the page: which function performs them, and the state that they return."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import RequestFactory

from mcp_django.contrib.playground.acts import EntryRequest, perform_act
from mcp_django.contrib.playground.page_state import PageState
from mcp_django.contrib.playground.primitives import KINDS, find_entry, list_entries
from mcp_django.contrib.playground.principals import build_principal
from mcp_django.contrib.playground.runs.operations import RunTarget
from tests.contrib.playground.test_playground import ALIAS, change, server

__all__ = ["change", "server"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("server")]


def perform(kind: str, key: str, accept: str = "text/html", **data: str) -> Any:
    """Return the result of a POST for an entry, as its operator."""
    operator = User.objects.create_superuser("boss")
    principal = build_principal(operator, operator)
    entry = find_entry(list_entries(ALIAS, principal, KINDS[kind]), KINDS[kind], key)
    assert entry is not None
    http = RequestFactory().post("/", data, HTTP_ACCEPT=accept)
    http.user = operator
    return perform_act(EntryRequest(http, RunTarget(ALIAS, principal, KINDS[kind], entry), {"completions": {}}))


def test_the_state_of_a_page_leaves_out_values_without_meaning() -> None:
    state = PageState(message="{}", error="", details={"exchange": 1})
    assert state.build_context() == {"message": "{}", "error": "", "exchange": 1}


@pytest.mark.parametrize("act", ["", "no_such_act"])
def test_an_unknown_act_shows_the_entry_and_sends_nothing(act: str) -> None:
    state = perform("tools", "write", act=act, arguments='{"name": "Ada"}', confirmed="on")
    assert isinstance(state, PageState)
    assert state.form is not None
    assert (state.message, dict(state.details)) == (None, {})


def test_a_message_is_shown_without_a_result() -> None:
    state = perform("prompts", "welcome", act="show", **{"argument-name": "Ada"})
    assert '"name": "Ada"' in state.message
    assert dict(state.details) == {}


def test_an_act_that_writes_needs_a_confirmation() -> None:
    state = perform("tools", "write", act="send_json", arguments='{"name": "Ada"}')
    assert "Tick the box" in state.error
    assert dict(state.details) == {}


def test_invalid_arguments_are_kept_in_their_field() -> None:
    state = perform("tools", "write", act="send_json", arguments="[1]", confirmed="on")
    assert (state.error, state.arguments, state.message) == ("The arguments must be a JSON object.", "[1]", None)


def test_suggestions_are_for_arguments_that_the_server_completes() -> None:
    assert perform("tools", "write", accept="application/json", suggest="name").content == b'{"values": []}'
