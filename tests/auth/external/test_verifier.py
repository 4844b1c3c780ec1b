"""JWTs of identity providers: valid and invalid ones."""

import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError

from mcp_django.auth.external import accounts
from mcp_django.auth.external.verifier import ExternalVerifier
from mcp_django.auth.resource import ProtectedResource
from tests.auth.external_issuer import RESOURCE, is_invalid, linked, refusal, verifier_of, verify
from tests.auth.identity_provider import Provider, b64, new_key, public, serving

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


@pytest.fixture
def provider(server: Provider) -> Provider:
    server.asked.clear()
    return server


@pytest.fixture
def ada(provider: Provider) -> User:
    return linked(provider)


@pytest.fixture
def verifier(provider: Provider) -> ExternalVerifier:
    return verifier_of(provider)


def test_a_signed_token_is_the_linked_user(verifier: Any, provider: Provider, ada: User) -> None:
    token = provider.token(client_id="cli", jti="t1", tenant="x")
    who = verify(verifier, token)
    assert who.user == ada
    assert who.key == f"{provider.issuer}|ada|cli"
    assert who.scopes == {"a", "b"}
    assert (who.kind, who.audience, who.token_id) == ("external", "default", "t1")
    assert who.expires_at == who.claims["exp"] + 30
    assert who.claims["tenant"] == "x"
    assert token not in repr(vars(verifier)) + repr(who)


def test_verification_needs_one_query(
    verifier: Any, provider: Provider, ada: User, django_assert_num_queries: Any
) -> None:
    verify(verifier, provider.token())
    with django_assert_num_queries(1):
        verify(verifier, provider.token())


def test_asymmetric_algorithms_are_accepted(provider: Provider, ada: User, subtests: pytest.Subtests) -> None:
    for algorithm in ("RS256", "PS256", "RS512", "ES256", "ES384", "ES512", "EdDSA"):
        with subtests.test(algorithm=algorithm):
            key = new_key(algorithm)
            provider.keys = [public(new_key("RS256", 1)), public(key)]
            verifier = verifier_of(provider, ALGORITHMS=[algorithm])
            assert verify(verifier, provider.token(key=key, header={"alg": algorithm})).user == ada
            provider.keys = [public(new_key())]


def test_an_algorithm_that_is_not_listed_is_refused(verifier: Any, provider: Provider, ada: User) -> None:
    assert is_invalid(verifier, provider.token(header={"alg": "PS256"}))
    assert provider.count() == 0


def test_a_token_without_a_signature_is_refused(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for alg in ("none", "None", "NONE", "nOnE", "", None, 0, ["RS256"], {}, "RS256 ", "ES256K"):
        with subtests.test(alg=alg):
            header = {"alg": alg, "typ": "at+jwt", "kid": new_key().get("kid")}
            signature = provider.token().split(".")[2]
            for signed in ("", signature):
                assert is_invalid(verifier, f"{b64(header)}.{b64(provider.claims())}.{signed}")


def test_a_public_key_is_not_used_as_a_shared_secret(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for alg in ("HS256", "HS384", "HS512"):
        with subtests.test(alg=alg):
            key = new_key()
            secrets = (key.export_to_pem(), json.dumps(public(key)).encode(), key.export_public().encode(), b"")
            signed = f"{b64({'alg': alg, 'typ': 'at+jwt', 'kid': key.get('kid')})}.{b64(provider.claims())}"
            for secret in secrets:
                signature = hmac.digest(secret, signed.encode(), getattr(hashlib, f"sha{alg[2:]}"))
                assert is_invalid(verifier, f"{signed}.{b64(signature)}")


def test_a_shared_secret_in_the_key_set_is_ignored(provider: Provider, ada: User) -> None:
    secret = b"k" * 32
    provider.keys = [public(new_key()), {"kty": "oct", "kid": "shared", "k": b64(secret), "alg": "RS256"}]
    signed = f"{b64({'alg': 'RS256', 'typ': 'at+jwt', 'kid': 'shared'})}.{b64(provider.claims())}"
    assert is_invalid(verifier_of(provider), f"{signed}.{b64(hmac.digest(secret, signed.encode(), 'sha256'))}")
    provider.keys = [public(new_key())]


def test_the_id_of_a_key_does_not_select_another_key(verifier: Any, provider: Provider, ada: User) -> None:
    foreign = new_key("RS256", 7)
    assert is_invalid(verifier, provider.token(key=foreign, header={"kid": new_key().get("kid")}))


def test_a_header_cannot_contain_its_own_key_or_rules(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for name in ("jwk", "jku", "x5u", "crit", "b64", "zip", "enc"):
        with subtests.test(name=name):
            foreign = new_key("RS256", 7)
            value: Any = {
                "jwk": json.loads(foreign.export_public()),
                "jku": f"{provider.origin}/foreign",
                "x5u": f"{provider.origin}/foreign",
                "crit": ["exp"],
                "b64": False,
            }.get(name, "DEF")
            for key in (foreign, new_key()):
                header = {"alg": "RS256", "typ": "at+jwt", "kid": new_key().get("kid"), name: value}
                good = provider.token(key=key).split(".")
                assert is_invalid(verifier, f"{b64(header)}.{good[1]}.{good[2]}")
            assert provider.asked == []


def test_every_altered_part_is_refused(verifier: Any, provider: Provider, ada: User) -> None:
    header, claims, signature = provider.token().split(".")
    other = provider.token(scope="a b admin").split(".")
    assert is_invalid(verifier, f"{header}.{other[1]}.{signature}")
    assert is_invalid(verifier, f"{header}.{claims}.{other[2]}")
    assert is_invalid(verifier, f"{other[0]}.{claims}.")
    head = json.loads('{"kid": "RS256-0", "typ": "at+jwt", "alg": "RS256"}')
    assert is_invalid(verifier, f"{b64(head)}.{claims}.{signature}")
    flipped = ("A" if signature[0] != "A" else "B") + signature[1:]
    assert is_invalid(verifier, f"{header}.{claims}.{flipped}")


FAR = 10**10
DATES: list[dict[str, Any]] = [
    {"exp": ...},
    {"exp": 0},
    {"exp": -1},
    {"exp": None},
    {"exp": "9999999999"},
    {"exp": True},
    {"exp": [FAR]},
    {"exp": 10**18},
    {"exp": 1e300},
    {"iat": ...},
    {"iat": "now"},
    {"iat": FAR},
    {"nbf": FAR},
    {"nbf": "0"},
    {"nbf": None},
]


def test_dates_must_be_valid_and_current(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for changes in DATES:
        with subtests.test(changes=changes):
            assert is_invalid(verifier, provider.token(**changes))
            assert provider.count() == 0  # an expired token causes no request


def test_an_expiry_that_is_no_number_is_refused(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for exp in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 500, "9" * 4500):
        with subtests.test(exp=exp):
            claims = json.dumps(provider.claims(exp="EXP")).replace('"EXP"', exp).encode()
            header = b64({"alg": "RS256", "typ": "at+jwt", "kid": new_key().get("kid")})
            assert is_invalid(verifier, f"{header}.{b64(claims)}.{provider.token().split('.')[2]}")


def test_clocks_may_differ_by_the_leeway(provider: Provider, ada: User) -> None:
    now = time.time()
    verifier = verifier_of(provider, LEEWAY=300)
    assert verify(verifier, provider.token(iat=now + 200, nbf=now + 200)).user == ada
    late = verify(verifier, provider.token(exp=now - 100))
    assert late.expires_at is not None
    assert late.expires_at > now
    assert is_invalid(verifier, provider.token(exp=now - 400))
    assert is_invalid(verifier, provider.token(nbf=now + 500))


AUDIENCES: list[Any] = [
    ...,
    None,
    "",
    [],
    {},
    7,
    [7],
    [RESOURCE.uri, 7],
    "https://shop.example",
    "https://shop.example/mcp/admin",
    "https://shop.example/mcpx",
    "https://shop.example/mcp?x",
    "https://shop.example/mcp#x",
    "http://shop.example/mcp",
    "https://shop.example.evil/mcp",
    "https://evil@shop.example/mcp",
    "shop.example/mcp",
    "api://shop",
    [["https://shop.example/mcp"]],
]


def test_a_token_for_another_resource_is_refused(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for aud in AUDIENCES:
        with subtests.test(aud=aud):
            assert is_invalid(verifier, provider.token(aud=aud))


SPELLINGS: list[Any] = [
    "https://shop.example/mcp/",
    "HTTPS://SHOP.example/mcp",
    ["https://other.example", "https://shop.example:443/mcp"],
]


def test_spellings_of_the_resource_are_normalized(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for aud in SPELLINGS:
        with subtests.test(aud=aud):
            assert verify(verifier, provider.token(aud=aud)).user == ada


def test_other_audiences_come_from_the_setting(provider: Provider, ada: User) -> None:
    admin = ProtectedResource(server="admin", uri="https://shop.example/mcp/admin")
    everywhere = verifier_of(provider, AUDIENCES=["api://shop"])
    assert verify(everywhere, provider.token(aud="api://shop")).audience == "default"
    assert verify(everywhere, provider.token(aud="api://shop"), admin).audience == "admin"
    assert verify(everywhere, provider.token()).user == ada  # in addition to the resource itself
    one = verifier_of(provider, AUDIENCES={"admin": ["api://shop"]})
    assert verify(one, provider.token(aud="api://shop"), admin).user == ada
    assert is_invalid(one, provider.token(aud="api://shop"))


def test_without_an_origin_only_configured_audiences_are_accepted(provider: Provider, ada: User) -> None:
    nowhere = ProtectedResource(server="default")
    assert is_invalid(verifier_of(provider), provider.token(), nowhere)
    assert verify(verifier_of(provider, AUDIENCES=["api"]), provider.token(aud="api"), nowhere).user == ada


def test_a_token_without_a_usable_subject_is_refused(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for sub in (..., "", None, 7, ["ada"], "x" * 256, "a\nb", "a\u202eb"):
        with subtests.test(sub=sub):
            assert is_invalid(verifier, provider.token(sub=sub))


def test_text_that_a_database_cannot_store_is_refused(verifier: Any, provider: Provider, ada: User) -> None:
    for sub in ("a\0b", "a\ud800b"):
        token = f"{b64({'alg': 'RS256', 'typ': 'at+jwt'})}.{b64(provider.claims(sub=sub))}.{b64(b's')}"
        assert not verifier.accepts(token)
        assert is_invalid(verifier, token)


def test_the_header_must_name_the_type_access_token(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for typ in (..., "JWT", "jwt", "id_token+jwt", "logout+jwt", "secevent+jwt", "at+jwt2", ""):
        with subtests.test(typ=typ):
            assert is_invalid(verifier, provider.token(header={"typ": typ}))


def test_the_type_is_optional_for_providers_without_one(provider: Provider, ada: User) -> None:
    verifier = verifier_of(provider, REQUIRE_TYPE=False)
    for typ in (..., "JWT", "jwt", "at+jwt", "application/at+jwt"):
        assert verify(verifier, provider.token(header={"typ": typ})).user == ada
    for typ in ("id_token+jwt", "logout+jwt", "dpop+jwt", "secevent+jwt"):
        assert is_invalid(verifier, provider.token(header={"typ": typ}))


NO_ACCESS_TOKENS: list[dict[str, Any]] = [
    {"nonce": "n"},
    {"at_hash": "h"},
    {"c_hash": "h"},
    {"s_hash": "h"},
    {"token_use": "id"},
    {"typ": "ID"},
    {"typ": "Refresh"},
    {"typ": "Offline"},
    {"token_type": "refresh_token"},
    {"token_type": ["bearer"]},
    {"cnf": {"jkt": "thumbprint"}},
]


def test_an_id_or_refresh_token_is_refused(provider: Provider, ada: User, subtests: pytest.Subtests) -> None:
    for claims in NO_ACCESS_TOKENS:
        for require in (True, False):
            with subtests.test(claims=claims, require=require):
                assert is_invalid(verifier_of(provider, REQUIRE_TYPE=require), provider.token(**claims))


def test_malformed_tokens_are_refused_without_a_request_to_the_provider(
    verifier: Any, provider: Provider, subtests: pytest.Subtests
) -> None:
    for token in (
        "",
        "x",
        "a.b.c",
        "eyJ.eyJ.",
        "eyJhbGciOiJub25lIn0.e30.",
        "eyJ0.e30.AAAA",
        "." * 3,
        "mcp_at_eyJ",
        "x" * 8000,
    ):
        with subtests.test(token=token):
            assert not verifier.accepts(token)
            assert is_invalid(verifier, token)
            assert provider.asked == []


def test_the_issuer_is_compared_exactly(
    verifier: Any, provider: Provider, ada: User, subtests: pytest.Subtests
) -> None:
    for iss in (..., None, 7, ["x"], "https://other.example", "", "issuer/", "ISSUER"):
        with subtests.test(iss=iss):
            if isinstance(iss, str):
                iss = {"issuer/": f"{provider.issuer}/", "ISSUER": provider.issuer.upper()}.get(iss, iss)
            token = provider.token(iss=iss)
            assert not verifier.accepts(token)
            assert is_invalid(verifier, token)


def test_a_database_failure_does_not_invalidate_the_token(
    verifier: Any, provider: Provider, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> Any:
        raise OperationalError("secret words")

    monkeypatch.setattr(accounts, "_select_identities", fails)
    problem = refusal(verifier, provider.token())
    assert (problem.kind, problem.status) == ("unavailable", 503)
    assert "secret" not in problem.description


def test_no_token_is_logged(verifier: Any, provider: Provider, ada: User, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    tokens = [provider.token(), provider.token(exp=1), provider.token(key=new_key("RS256", 7)), "eyJx.eyJy.zzzz"]
    for token in tokens[1:]:
        refusal(verifier, token)
    verify(verifier, tokens[0])
    assert not any(part in caplog.text for token in tokens for part in token.split("."))
