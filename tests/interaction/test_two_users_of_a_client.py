"""What each of two users may see, as `test_two_users` has it, with tokens that they let a client have."""

import pytest

from tests.interaction import tokens
from tests.interaction.doors import over
from tests.interaction.test_two_users import (
    connector,
    test_a_step_up_opens_it,
    test_each_sees_lists_of_their_own_however_often_they_ask_by_turns,
    test_what_more_scopes_would_open_says_which_before_anything_else_is_said,
    test_what_one_may_not_see_answers_as_what_is_not_there,
    test_what_one_may_see_is_served,
)

__all__ = [
    "test_a_step_up_opens_it",
    "test_each_sees_lists_of_their_own_however_often_they_ask_by_turns",
    "test_what_more_scopes_would_open_says_which_before_anything_else_is_said",
    "test_what_one_may_not_see_answers_as_what_is_not_there",
    "test_what_one_may_see_is_served",
]
pytestmark = over("asgi", reason="whose token it is is the same on every way in: test_same_principal")


@pytest.fixture
def revision() -> str:
    """The newest; the others are for `test_two_users`."""
    return "2026-07-28"


@pytest.fixture
def people(settings, db, door, revision):
    """`await people("ann", scopes=1)`: the client, as that user, with a token that holds so many of the scopes."""
    settings.MCP = {**settings.MCP, "AUTH": ["oauth"]}
    return connector(door, revision, tokens.of_a_client)
