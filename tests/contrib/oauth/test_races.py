"""Simultaneous requests of one client, each on a connection of its own."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections, router

from mcp_django.contrib.oauth.flows import refresh_rotation, revocation
from mcp_django.contrib.oauth.flows.validator import Validator
from mcp_django.contrib.oauth.models import TokenFamily
from mcp_django.contrib.oauth.tokens import resource_indicators
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_refresh_token_model
from tests.support.waiting import WAIT_SECONDS

from . import oauth_flow
from .oauth_flow import create_client, create_user, exchange, issue_code, obtain_tokens, read_json, refresh

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.contrib.oauth.urls")]
PARALLEL = 4


@pytest.fixture(autouse=True)
def protected(settings: Any) -> None:
    settings.MCP = oauth_flow.SETTINGS


def run_at_once(work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, *, meet: tuple[Any, str] | None) -> list[Any]:
    """Run `work` in threads that wait for each other after the call of the function `meet`. Return the results."""
    barrier = threading.Barrier(PARALLEL)
    if meet is not None:
        place, name = meet
        real = getattr(place, name)

        def met(*args: Any, **kwargs: Any) -> Any:
            found = real(*args, **kwargs)
            barrier.wait(WAIT_SECONDS)
            return found

        monkeypatch.setattr(place, name, met)
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(PARALLEL)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    monkeypatch.undo()
    assert len(results) == PARALLEL
    return results


def test_parallel_refreshes_give_working_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_client()
    token = obtain_tokens(app, create_user())["refresh_token"]
    # All have found the token good before one of them uses it.
    responses = run_at_once(lambda: refresh(app, token), monkeypatch, meet=(refresh_rotation, "is_replayed"))
    pairs = [read_json(response) for response in responses]
    assert len({each["access_token"] for each in pairs}) == PARALLEL
    for each in pairs:
        assert oauth_flow.find_token_row(each["access_token"]) is not None
        read_json(refresh(app, each["refresh_token"]))


def test_a_code_used_twice_at_once_revokes_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    app, user = create_client(), create_user()
    given = issue_code(app, user)
    # All have found the code before one of them uses it up.
    responses = run_at_once(lambda: exchange(app, given), monkeypatch, meet=(resource_indicators, "resolve_resources"))
    good = [response for response in responses if response.status_code == 200]
    assert len(good) == 1
    assert {read_json(response, 400)["error"] for response in responses if response is not good[0]} == {"invalid_grant"}
    assert not get_access_token_model().objects.exists()
    assert read_json(refresh(app, read_json(good[0])["refresh_token"]), 400)["error"] == "invalid_grant"


def test_tokens_revoked_before_the_response_are_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, user = create_client(), create_user()
    real = Validator.save_bearer_token

    def save(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        revocation.withdraw_access(user, app)

    monkeypatch.setattr(Validator, "save_bearer_token", save)
    assert oauth_flow.find_token_row(read_json(exchange(app, issue_code(app, user)))["access_token"]) is None


def test_a_revocation_during_refreshes_leaves_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    app, user = create_client(), create_user()
    token = obtain_tokens(app, user)["refresh_token"]
    turns = iter(range(PARALLEL))
    lock = threading.Lock()

    def work() -> Any:
        with lock:
            turn = next(turns)
        if turn == 0:
            real(user, app)
            return None
        return refresh(app, token)

    real = revocation.withdraw_access
    run_at_once(work, monkeypatch, meet=None)
    assert not get_access_token_model().objects.exists()
    assert not get_refresh_token_model().objects.filter(revoked=None).exists()
    assert not TokenFamily.objects.filter(revoked=None).exists()


def test_a_transaction_begins_with_a_write(django_assert_num_queries: Any) -> None:
    """SQLite refuses a transaction that reads before it writes, if another one wrote in between."""
    app = create_client()
    token = refresh_rotation.find_refresh_token(obtain_tokens(app, create_user())["refresh_token"])
    with django_assert_num_queries(4) as found:
        refresh_rotation.claim_rotation(token)
    assert found.captured_queries[0]["sql"].startswith("UPDATE")
    assert router.db_for_write(TokenFamily) == "default"
