"""The checks of all transports are made in one module, in one order."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mcp_django.transports
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.errors import InvalidRequest, ParseError
from mcp_django.protocol.headers import Headers
from mcp_django.transports import admission as module
from mcp_django.transports.admission import Admission

ALICE = DjangoPrincipal(issuer="tests", subject="alice")
SHARED_CHECKS = {"check_address_rate", "check_principal_rate", "redeem_ticket", "authenticate_throttled"}


class RecordingAuthenticator:
    """An authenticator that admits all callers, and records its calls."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls
        self.cached: DjangoPrincipal | None = None

    def get_cached(self, request: AuthRequest) -> DjangoPrincipal | None:
        return self.cached

    async def redeem_ticket(self, request: AuthRequest) -> AuthRequest:
        self.calls.append("ticket")
        return request._replace(query="", headers=Headers([(b"authorization", b"Bearer x")]))

    async def authenticate_throttled(self, request: AuthRequest) -> DjangoPrincipal:
        self.calls.append(("credential", request.headers.wire.get(b"authorization")))
        return ALICE


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    async def count_address(request: AuthRequest, executor: Any) -> None:
        found.append("address")

    monkeypatch.setattr(module, "check_address_rate", count_address)
    return found


def make_admission(calls: list[Any], cached: DjangoPrincipal | None = None) -> Admission:
    authenticator = RecordingAuthenticator(calls)
    authenticator.cached = cached
    services: Any = SimpleNamespace(
        security=None,
        authenticator=authenticator,
        server=SimpleNamespace(ports=SimpleNamespace(executor=None)),
        limits=SimpleNamespace(body=20),
    )
    return Admission(services)


async def test_the_address_is_counted_before_the_credential(calls: list[Any]) -> None:
    request = AuthRequest(Headers())
    assert await make_admission(calls).admit_caller(request) == ALICE
    assert calls == ["address", ("credential", None)]


async def test_a_cached_caller_is_counted_but_not_authenticated_again(calls: list[Any]) -> None:
    request = AuthRequest(Headers())
    assert await make_admission(calls, cached=ALICE).admit_caller(request) == ALICE
    assert calls == ["address"]


async def test_the_credential_of_a_ticket_takes_its_place(calls: list[Any]) -> None:
    admitted = await make_admission(calls).admit_socket(AuthRequest(Headers(), query="ticket=1", is_socket=True))
    assert calls == ["address", "ticket", ("credential", b"Bearer x")]
    assert (admitted.request.query, admitted.request.headers.get("authorization")) == ("", "Bearer x")


def test_a_message_is_measured_before_it_is_decoded(calls: list[Any]) -> None:
    admission = make_admission(calls)
    assert admission.decode(b'{"a": 1}') == {"a": 1}
    with pytest.raises(InvalidRequest, match="20 bytes"):
        admission.decode(b"[" * 21)
    with pytest.raises(ParseError):
        admission.decode(b"{")


def test_no_other_module_of_the_transports_makes_a_shared_check() -> None:
    folder = Path(mcp_django.transports.__file__).parent
    found = {
        (path.relative_to(folder).as_posix(), name)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
        and (name := node.id if isinstance(node, ast.Name) else node.attr) in SHARED_CHECKS
    }
    assert found == {("admission.py", name) for name in SHARED_CHECKS}
