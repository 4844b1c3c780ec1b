"""Authentication: closed by default, the local principal from this machine only, otherwise bearer tokens."""

import asyncio
import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from mcp_django import Principal, wiring
from mcp_django.auth.authentication import principal_cache as memory
from mcp_django.auth.authentication.authenticator import MAX_TOKEN_BYTES, Authenticator
from mcp_django.auth.authentication.principal_cache import get_generation
from mcp_django.auth.authentication.verifiers import AuthError, PersonalTokenVerifier, build_verifier
from mcp_django.auth.authorization.scopes import ScopeFilter
from mcp_django.auth.principal import DjangoPrincipal, local_principal
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resource import ProtectedResource
from mcp_django.models import PersonalAccessToken
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import TransportRefusal
from mcp_django.protocol.headers import Headers
from mcp_django.runtime.threads.executor import LeasingExecutor
from mcp_django.server.ports import Overloaded
from tests.support.clock import Clock

LOOPBACK = "127.0.0.1"
HOST = (b"host", b"localhost:8000")


def headers(*pairs: tuple[bytes, bytes], token: str | None = None) -> Headers:
    """The headers of a request to localhost."""
    credential = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    host = [] if any(name == HOST[0] for name, _ in pairs) else [HOST]
    return Headers([*host, *credential, *pairs])


def authenticate(authenticator: Authenticator, sent: Headers, peer: str | None = LOOPBACK) -> DjangoPrincipal:
    """The principal, the way a transport asks."""
    request = AuthRequest(sent, peer)
    return authenticator.get_cached(request) or async_to_sync(authenticator.authenticate)(request)


def known(authenticator: Authenticator, sent: Headers, peer: str | None = None) -> DjangoPrincipal | None:
    """Whom the authenticator knows without waiting."""
    return authenticator.get_cached(AuthRequest(sent, peer))


def refusal(authenticator: Authenticator, sent: Headers, peer: str | None = LOOPBACK) -> SimpleNamespace:
    """Status, headers and message of the refusal."""
    with pytest.raises(TransportRefusal) as caught:
        authenticate(authenticator, sent, peer)
    found = dict(caught.value.headers)
    assert found[b"content-type"] == b"application/json"
    assert found[b"cache-control"] == b"no-store"
    body = jsonrpc.loads(caught.value.body)
    assert "id" not in body
    challenge = found.get(b"www-authenticate", b"").decode()
    return SimpleNamespace(
        status=caught.value.status, headers=found, challenge=challenge, message=body["error"]["message"]
    )


class Recording:
    """A verifier of tokens that start with its prefix; counts."""

    def __init__(self, prefix: str = "", **facts: Any) -> None:
        self.prefix, self.facts, self.seen = prefix, facts, list[str]()

    def accepts(self, token: str) -> bool:
        return token.startswith(self.prefix)

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        self.seen.append(token)
        if token.endswith("bad"):
            raise AuthError("invalid_token", "No such token")
        return DjangoPrincipal(issuer=self.prefix, subject=token, **self.facts)


class Broken(Recording):
    """A verifier that fails."""

    def __init__(self, problem: Exception) -> None:
        super().__init__()
        self.problem = problem

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        raise self.problem


class Answering(Recording):
    """A verifier that returns a value of any type."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
        found: DjangoPrincipal = self.answer
        return found


def make_authenticator(*verifiers: Any, **options: Any) -> Authenticator:
    return Authenticator("default", executor=LeasingExecutor(), verifiers=verifiers, **options)


def at(**facts: Any) -> dict[str, Any]:
    """An authenticator's options: the server is this resource."""
    resource = ProtectedResource(server="default", **facts)
    return {"resolve_resource": lambda request: resource}


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def issued(user: User) -> tuple[PersonalAccessToken, str]:
    """A token of alice's: the row and the token."""
    return PersonalAccessToken.issue(user=user, name="test", expires=timezone.now() + timedelta(days=1))


@pytest.fixture
def configure(settings: Any) -> Any:
    """Makes a server's authenticator from settings."""

    def configure(auth: Any = None, *, debug: bool = False, server: str = "default", **options: Any) -> Authenticator:
        settings.DEBUG = debug
        settings.MCP = {"AUTH": auth, **options}
        settings.OAUTH2_PROVIDER = {}
        return wiring.create_authenticator(server)

    return configure


class TestClosedByDefault:
    def test_without_authentication_all_callers_are_refused(self, configure: Any, issued: Any) -> None:
        closed = configure(None)
        for sent in (headers(), headers(token=issued[1]), headers((b"cookie", b"sessionid=1"))):
            found = refusal(closed, sent)
            assert found.status == 403
            assert not found.challenge

    def test_with_debug_a_local_caller_is_the_local_principal(self, configure: Any) -> None:
        assert authenticate(configure(None, debug=True), headers()).is_local

    def test_with_debug_others_are_refused(self, configure: Any) -> None:
        assert refusal(configure(None, debug=True), headers(), "192.0.2.1").status == 403

    def test_with_debug_a_bearer_is_the_user_of_the_token(self, configure: Any, issued: Any) -> None:
        development = configure(None, debug=True)
        who = authenticate(development, headers(token=issued[1]))
        assert not who.is_local
        assert who.user.username == "alice"
        assert refusal(development, headers(token="mcp_pat_wrong")).status == 401
        assert refusal(development, headers((b"authorization", b"Basic YTpi"))).status == 401

    def test_auth_none_is_the_local_principal_without_debug(self, configure: Any) -> None:
        server = configure("none")
        assert authenticate(server, headers()).is_local
        assert authenticate(server, headers(token="ignored")).is_local
        assert refusal(server, headers(), "192.0.2.1").status == 403

    def test_auth_token_refuses_local_callers_without_a_token(self, configure: Any) -> None:
        for debug in (True, False):
            assert refusal(configure("token", debug=debug), headers()).status == 401


PROXY_HEADERS: list[str] = [
    *("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-real-ip"),
    *("via", "x-client-ip", "cf-connecting-ip", "true-client-ip", "cdn-loop", "x-forwarded-prefix"),
]


REMOTE_HOSTS: list[str] = [
    *(
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.evil",
        "127.0.0.999",
        "127.",
    ),
    *("localhost:", "localhost:x", "localhost:80:80", "a@localhost", "localhost\n", "::1", "[::2]", "[::1"),
    *(
        "testserver",
        "0.0.0.0",
        "10.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::1%lo]",
        "localhost.",
        "127.0.0.1:999999",
    ),
]


REMOTE_PEERS: list[str | None] = [
    None,
    "",
    "10.0.0.1",
    "192.168.1.2",
    "::ffff:10.0.0.1",
    "fe80::1",
    "0.0.0.0",
    "::",
    "localhost",
    "127.1",
    "unix:",
]


class TestThisMachine:
    @pytest.fixture
    def local(self) -> Authenticator:
        return make_authenticator(local=True)

    def test_loopback_peers_are_local(self, local: Authenticator, subtests: pytest.Subtests) -> None:
        for peer in ("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"):
            with subtests.test(peer=peer):
                assert authenticate(local, headers(), peer).is_local
                assert known(local, headers(), peer) is not None

    def test_other_peers_are_not_local(self, local: Authenticator, subtests: pytest.Subtests) -> None:
        """Without an address it may be a proxy on a Unix socket, which everybody reaches."""
        for peer in REMOTE_PEERS:
            with subtests.test(peer=peer):
                assert refusal(local, headers(), peer).status == 403
                assert known(local, headers(), peer) is None

    def test_loopback_hosts_are_local(self, local: Authenticator, subtests: pytest.Subtests) -> None:
        for host in (
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1",
            "127.1.2.3:65535",
            "[::1]",
            "[::1]:8000",
            "[0:0:0:0:0:0:0:1]",
        ):
            with subtests.test(host=host):
                assert authenticate(local, Headers([(b"host", host.encode())])).is_local

    def test_other_hosts_are_not_local(self, local: Authenticator, subtests: pytest.Subtests) -> None:
        """DNS rebinding: a page may name itself and point the name here."""
        for host in REMOTE_HOSTS:
            with subtests.test(host=host):
                assert refusal(local, Headers([(b"host", host.encode())])).status == 403

    def test_a_request_without_a_host_or_with_two_is_not_local(self, local: Authenticator) -> None:
        assert refusal(local, Headers([])).status == 403
        assert refusal(local, Headers([(b"host", b"evil.example"), HOST])).status == 403
        assert known(local, Headers([(b"host", b"evil.example"), HOST]), LOOPBACK) is None

    def test_a_request_through_a_proxy_is_not_local(self, local: Authenticator, subtests: pytest.Subtests) -> None:
        for name in PROXY_HEADERS:
            with subtests.test(name=name):
                sent = headers((name.encode(), b"127.0.0.1"))
                assert refusal(local, sent).status == 403
                assert known(local, sent, LOOPBACK) is None

    def test_the_cached_local_principal_needs_a_peer(self, local: Authenticator) -> None:
        assert known(local, headers()) is None


class TestLocalUser:
    def test_the_local_principal_acts_as_the_named_user(
        self, configure: Any, user: User, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(0):
            server = configure("none", LOCAL_USER="alice")
            assert known(server, headers(), LOOPBACK) is None
        who = authenticate(server, headers())
        assert (who.key, who.user, who.is_local) == ("local", user, True)
        with django_assert_num_queries(0):
            assert known(server, headers(), LOOPBACK) is who

    def test_a_missing_local_user_is_a_server_error(self, configure: Any, db: None, caplog: Any) -> None:
        found = refusal(configure("none", LOCAL_USER="nobody"), headers())
        assert found.status == 503
        assert "LOCAL_USER" in caplog.text

    def test_a_deactivated_local_user_is_refused_at_once(self, configure: Any, user: User) -> None:
        server = configure("none", LOCAL_USER="alice")
        authenticate(server, headers())
        user.is_active = False
        user.save()
        assert known(server, headers(), LOOPBACK) is None
        assert refusal(server, headers()).status == 503

    def test_the_user_is_read_again_after_a_while(self, configure: Any, user: User, clock: Clock) -> None:
        server = configure("none", LOCAL_USER="alice")
        authenticate(server, headers())
        User.objects.update(first_name="Alice")
        clock.move(11)
        assert authenticate(server, headers()).user.first_name == "Alice"


class TestBearer:
    def test_without_a_token_there_is_a_challenge_and_no_error(self) -> None:
        found = refusal(
            make_authenticator(Recording(), **at(scopes=("mcp:read",), metadata_url="https://h/m")), headers()
        )
        assert found.status == 401
        assert found.challenge == 'Bearer scope="mcp:read", resource_metadata="https://h/m"'

    def test_an_invalid_token_is_named_as_the_error(self) -> None:
        found = refusal(make_authenticator(Recording()), headers(token="bad"))
        assert found.status == 401
        assert found.challenge == 'Bearer error="invalid_token", error_description="No such token"'
        assert found.message == "No such token"

    def test_another_scheme_is_not_a_token(self, subtests: pytest.Subtests) -> None:
        for credential in (b"Basic YTpi", b"", b"BearerX abc", b"Token abc", b"Digest a=b", b"abc"):
            with subtests.test(credential=credential):
                found = refusal(make_authenticator(Recording()), headers((b"authorization", credential)))
                assert (found.status, found.challenge) == (401, 'Bearer realm="mcp"')

    def test_a_malformed_token_is_invalid_and_reaches_no_verifier(self, subtests: pytest.Subtests) -> None:
        for credential in (b"Bearer", b"Bearer ", b"Bearer a b", b"Bearer a,b", b'Bearer "a"', b"Bearer \xff"):
            with subtests.test(credential=credential):
                recording = Recording()
                found = refusal(make_authenticator(recording), headers((b"authorization", credential)))
                assert found.status == 401
                assert 'error="invalid_token"' in found.challenge
                assert recording.seen == []

    def test_the_scheme_is_read_in_any_case_and_spacing(self, subtests: pytest.Subtests) -> None:
        for credential in (b"Bearer abc", b"bearer abc", b"BEARER  abc", b"  Bearer abc  "):
            with subtests.test(credential=credential):
                assert (
                    authenticate(make_authenticator(Recording()), headers((b"authorization", credential))).subject
                    == "abc"
                )

    def test_two_authorization_headers_are_a_bad_request(self) -> None:
        server = make_authenticator(Recording())
        authenticate(server, headers(token="a"))
        sent = headers((b"authorization", b"Bearer b"), token="a")
        found = refusal(server, sent)
        assert found.status == 400
        assert 'error="invalid_request"' in found.challenge
        assert refusal(server, headers((b"authorization", b"Bearer a"), token="a")).status == 400

    def test_a_token_may_have_up_to_eight_kibibytes(self) -> None:
        server = make_authenticator(Recording())
        assert authenticate(server, headers(token="a" * MAX_TOKEN_BYTES)).subject
        found = refusal(server, headers(token="a" * (MAX_TOKEN_BYTES + 1)))
        assert (found.status, 'error="invalid_request"' in found.challenge) == (400, True)

    def test_a_cookie_or_another_header_is_not_a_credential(self) -> None:
        sent = headers((b"cookie", b"sessionid=abc"), (b"x-api-key", b"abc"), (b"proxy-authorization", b"Bearer abc"))
        assert refusal(make_authenticator(Recording()), sent).status == 401


class TestVerifiers:
    def test_only_the_verifier_that_accepts_the_form_of_the_token_gets_it(self) -> None:
        first, second = Recording("a"), Recording("b")
        server = make_authenticator(first, second)
        assert authenticate(server, headers(token="b-1")).issuer == "b"
        assert refusal(server, headers(token="a-bad")).status == 401
        assert (first.seen, second.seen) == (["a-bad"], ["b-1"])

    def test_a_token_that_no_verifier_accepts_is_invalid(self) -> None:
        assert 'error="invalid_token"' in refusal(make_authenticator(Recording("a")), headers(token="c")).challenge

    def test_several_can_be_configured(self, configure: Any, issued: Any) -> None:
        server = configure(["token", "tests.auth.authentication.test_authenticator.anything"])
        assert authenticate(server, headers(token=issued[1])).user.username == "alice"
        assert authenticate(server, headers(token="other")).issuer == "configured"

    def test_a_verifier_that_fails_refuses_and_logs_without_the_token(
        self, caplog: Any, subtests: pytest.Subtests
    ) -> None:
        for problem in (KeyError("secret-token"), OSError(), TypeError()):
            with subtests.test(problem=problem):
                caplog.clear()

                found = refusal(make_authenticator(Broken(problem)), headers(token="secret-token"))
                assert found.status == 503
                assert int(found.headers[b"retry-after"]) >= 1
                assert "Broken" in caplog.text
                assert type(problem).__name__ in caplog.text
                assert "secret-token" not in caplog.text + found.message

    def test_a_verifier_without_a_remote_principal_refuses(self, subtests: pytest.Subtests) -> None:
        for answer in (None, True, "alice", local_principal()):
            with subtests.test(answer=answer):
                assert refusal(make_authenticator(Answering(answer)), headers(token="abc")).status == 503

    def test_a_full_server_is_503_with_its_retry_after(self) -> None:
        class Full(Recording):
            async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
                raise Overloaded(retry_after=7)

        found = refusal(make_authenticator(Full()), headers(token="abc"))
        assert (found.status, found.headers[b"retry-after"]) == (503, b"7")

    def test_a_missing_scope_is_403_with_the_required_scopes(self) -> None:
        class Strict(Recording):
            async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
                raise AuthError("insufficient_scope", "More", scopes=("b", "a"))

        found = refusal(make_authenticator(Strict(), **at(scopes=("base",))), headers(token="abc"))
        assert found.status == 403
        assert found.challenge == 'Bearer error="insufficient_scope", error_description="More", scope="a b"'

    def test_an_expired_principal_of_a_verifier_is_refused(self) -> None:
        assert refusal(make_authenticator(Recording(expires_at=time.time())), headers(token="abc")).status == 401
        assert authenticate(make_authenticator(Recording(expires_at=time.time() + 600)), headers(token="abc"))

    def test_a_principal_of_a_verifier_for_another_server_is_refused(self) -> None:
        assert refusal(make_authenticator(Recording(audience="other")), headers(token="abc")).status == 401
        assert authenticate(make_authenticator(Recording(audience="default")), headers(token="abc"))


async def anything(token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
    """A verifier that settings can name."""
    return DjangoPrincipal(issuer="configured", subject=token)


class TestMemory:
    def test_a_verified_token_is_cached(self) -> None:
        verifier = Recording()
        server = make_authenticator(verifier)
        assert known(server, headers(token="abc")) is None
        who = authenticate(server, headers(token="abc"))
        assert known(server, headers(token="abc")) is who
        assert verifier.seen == ["abc"]

    def test_the_token_itself_is_not_cached(self) -> None:
        server = make_authenticator(Recording())
        authenticate(server, headers(token="very-secret"))
        assert b"very-secret" not in b"".join(server._cache._entries)
        assert "very-secret" not in repr(server._cache._entries.keys())

    def test_a_cached_token_expires_after_the_configured_seconds(self, clock: Clock) -> None:
        verifier = Recording()
        server = make_authenticator(verifier, cache_seconds=10)
        authenticate(server, headers(token="abc"))
        clock.move(9)
        assert known(server, headers(token="abc"))
        clock.move(2)
        assert known(server, headers(token="abc")) is None
        authenticate(server, headers(token="abc"))
        assert len(verifier.seen) == 2

    def test_a_cached_token_expires_with_the_token(self, clock: Clock) -> None:
        server = make_authenticator(Recording(expires_at=time.time() + 3600), cache_seconds=7200)
        authenticate(server, headers(token="abc"))
        clock.move(3000)
        assert known(server, headers(token="abc"))
        clock.move(601)
        assert known(server, headers(token="abc")) is None

    def test_the_cache_can_be_disabled(self, configure: Any, issued: Any) -> None:
        server = configure("token", TOKEN_CACHE_SECONDS=0)
        authenticate(server, headers(token=issued[1]))
        assert known(server, headers(token=issued[1])) is None

    def test_invalid_tokens_are_not_cached(self) -> None:
        verifier = Recording()
        server = make_authenticator(verifier)
        for _ in range(2):
            refusal(server, headers(token="bad"))
        assert verifier.seen == ["bad", "bad"]

    def test_the_cache_is_bounded_and_evicts_the_oldest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "MAX_CACHED_PRINCIPALS", 3)
        server = make_authenticator(Recording())
        for token in ("a", "b", "c", "d"):
            authenticate(server, headers(token=token))
        assert [bool(known(server, headers(token=token))) for token in ("a", "b", "c", "d")] == [
            False,
            True,
            True,
            True,
        ]

    def test_servers_have_separate_caches(self, configure: Any, user: User) -> None:
        servers = {"SERVERS": {"default": {}, "shop": {}}}
        _, token = PersonalAccessToken.issue(user=user, name="test", audience="shop", expires=None)
        shop, default = configure("token", server="shop", **servers), configure("token", **servers)
        assert authenticate(shop, headers(token=token))
        assert refusal(default, headers(token=token)).status == 401


class TestForgetting:
    @pytest.fixture
    def server(self, issued: Any) -> Authenticator:
        """It knows the issued token."""
        server = make_authenticator(PersonalTokenVerifier())
        authenticate(server, headers(token=issued[1]))
        return server

    def test_a_revoked_token_is_refused_at_once(self, server: Authenticator, issued: Any) -> None:
        issued[0].revoke()
        assert refusal(server, headers(token=issued[1])).status == 401

    def test_a_deleted_token_is_refused_at_once(self, server: Authenticator, issued: Any) -> None:
        issued[0].delete()
        assert refusal(server, headers(token=issued[1])).status == 401

    def test_a_changed_token_takes_effect_at_once(self, server: Authenticator, issued: Any) -> None:
        issued[0].scopes = ["more"]
        issued[0].save()
        assert authenticate(server, headers(token=issued[1])).scopes == {"more"}

    def test_tokens_of_a_deactivated_or_deleted_user_are_refused_at_once(
        self, server: Authenticator, issued: Any, user: User
    ) -> None:
        user.is_active = False
        user.save()
        assert refusal(server, headers(token=issued[1])).status == 401
        user.is_active = True
        user.save()
        assert authenticate(server, headers(token=issued[1]))
        user.delete()
        assert refusal(server, headers(token=issued[1])).status == 401

    def test_other_tokens_and_ordinary_changes_of_users_keep_the_cache(
        self, server: Authenticator, issued: Any, user: User
    ) -> None:
        PersonalAccessToken.issue(user=user, name="another", expires=None)[0].revoke()
        user.save()
        assert known(server, headers(token=issued[1]))

    def test_a_verification_overtaken_by_a_revocation_is_not_cached(self, issued: Any) -> None:
        row, token = issued

        class Slow(PersonalTokenVerifier):
            async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
                who = await super().verify(token, resource=resource)
                row.revoked_at = timezone.now()
                await row.asave()
                return who

        server = make_authenticator(Slow())
        assert authenticate(server, headers(token=token))
        assert known(server, headers(token=token)) is None

    @pytest.mark.django_db(transaction=True)
    def test_a_verification_before_the_commit_of_a_revocation_is_removed(self) -> None:
        user = User.objects.create_user("bob")
        row, token = PersonalAccessToken.issue(user=user, name="test", expires=None)
        server = make_authenticator(PersonalTokenVerifier())
        who = authenticate(server, headers(token=token))
        sent = headers(token=token)
        with transaction.atomic():
            row.revoke()
            # Another worker of this process still reads the old row.
            server._cache.add(
                server._digest(sent.wire[b"authorization"], ProtectedResource(server="default")), who, get_generation()
            )
            assert known(server, sent)
        assert known(server, sent) is None


def test_concurrent_verifications_are_all_answered() -> None:
    async def main() -> list[DjangoPrincipal]:
        server = make_authenticator(Recording())
        sent = [headers(token=f"t{number}") for number in range(50)]
        return await asyncio.gather(*[server.authenticate(AuthRequest(one)) for one in sent])

    assert [who.subject for who in asyncio.run(main())] == [f"t{number}" for number in range(50)]


def test_tokens_are_verified_on_a_thread_when_the_server_has_threads() -> None:
    """Outside a call's context asgiref has one thread for the whole process, whose connections are not closed."""

    class Threaded(Recording):
        async def verify(self, token: str, *, resource: ProtectedResource) -> DjangoPrincipal:
            name = await sync_to_async(lambda: threading.current_thread().name)()
            return DjangoPrincipal(issuer="thread", subject=name)

    async def main() -> DjangoPrincipal:
        server = make_authenticator(Threaded())
        return await server.authenticate(AuthRequest(headers(token="abc")))

    assert asyncio.run(main()).subject.startswith("mcp-thread")


class ByHost(Recording):
    """A verifier whose principal depends on the host."""

    async def verify(self, token: str, *, resource: ProtectedResource, request: Any) -> DjangoPrincipal:  # type: ignore[override]
        self.seen.append(token)
        return DjangoPrincipal(issuer=request.headers["Host"], subject=token)


def test_a_verifier_may_take_the_request_and_runs_for_each_request() -> None:
    verifier = ByHost()
    authenticator = make_authenticator(verifier)
    for host in (b"a.example", b"b.example", b"a.example"):
        sent = headers((b"host", host), token="t")
        assert authenticate(authenticator, sent).issuer == host.decode()
        assert known(authenticator, sent) is None
    assert len(verifier.seen) == 3


def test_a_function_that_takes_the_request_is_a_verifier() -> None:
    async def verify(token: str, *, resource: ProtectedResource, request: Any) -> Principal:
        return Principal(issuer="own", subject=request.peer)

    assert authenticate(make_authenticator(build_verifier(verify)), headers(token="t")).subject == LOOPBACK


@pytest.mark.django_db
def test_an_authorizer_may_take_the_request() -> None:
    def by_host(principal: DjangoPrincipal, *, resource: Any, request: Any) -> DjangoPrincipal | None:
        return principal if request.headers["Host"] == "a.example" else None

    authenticator = make_authenticator(Recording(), scope_filter=ScopeFilter(authorize=by_host))
    for _ in range(2):
        assert authenticate(authenticator, headers((b"host", b"a.example"), token="t")).subject == "t"
        assert refusal(authenticator, headers((b"host", b"b.example"), token="t")).status == 403
