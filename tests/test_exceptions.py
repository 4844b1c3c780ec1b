"""Django's exceptions, as the engine understands them."""

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.db import IntegrityError
from django.http import Http404
from django.utils.translation import gettext_lazy as _

from mcp_django.exceptions import translate
from mcp_django.protocol.errors import MCPError, NotFound, ToolError
from mcp_django.protocol.meta import ERRORS_KEY


def test_expected_exceptions_become_texts_for_the_model(subtests: pytest.Subtests) -> None:
    cases = (
        (ValidationError("too long"), "too long"),
        (ValidationError(_("too long")), "too long"),
        (ValidationError("at most %(n)s", params={"n": 3}), "at most 3"),
        (ValidationError(["one", "two"]), "one two"),
        (ValidationError([ValidationError("one"), ValidationError("%(n)s", params={"n": 2})]), "one 2"),
        (
            ValidationError({"name": ["is taken", "is long"], "age": "is negative"}),
            "name: is taken is long\nage: is negative",
        ),
        (ValidationError({"__all__": ["No such pair"], "a": "b"}), "No such pair\na: b"),
        (PermissionDenied("not you"), "not you"),
        (PermissionDenied(), "Permission denied"),
        (Http404("no page"), "no page"),
        (Http404(), "Not found"),
        (Group.DoesNotExist("Group matching query does not exist."), "Group matching query does not exist."),
        (Group.DoesNotExist(), "Not found"),
    )
    for problem, text in cases:
        with subtests.test(problem=problem, text=text):
            translated = translate(problem)
            assert isinstance(translated, ToolError)
            assert str(translated) == text


def test_kinds_of_errors_keep_their_code_and_details() -> None:
    assert isinstance(translate(Http404()), NotFound)
    assert isinstance(translate(Group.DoesNotExist()), NotFound)
    assert not isinstance(translate(PermissionDenied()), NotFound)

    assert translate(MCPError("x")) is None
    assert translate(ToolError("x")) is None

    translated = translate(ValidationError({"name": ["is taken", "is long"], "__all__": _("No such pair")}))
    assert isinstance(translated, ToolError)
    assert translated.meta == {ERRORS_KEY: {"name": ["is taken", "is long"], "__all__": ["No such pair"]}}
    assert type(translated.meta[ERRORS_KEY]["__all__"][0]) is str


def test_every_other_exception_is_a_bug(subtests: pytest.Subtests) -> None:
    cases = (
        RuntimeError("x"),
        KeyError("x"),
        IntegrityError("UNIQUE constraint failed"),
        ImproperlyConfigured("x"),
        Group.MultipleObjectsReturned("x"),
        PermissionError("x"),
        FileNotFoundError("x"),
    )
    for problem in cases:
        with subtests.test(problem=problem):
            assert translate(problem) is None
