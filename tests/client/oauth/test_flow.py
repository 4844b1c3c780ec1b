"""From a server to its authorization server and back, if one of them is malicious."""

import logging
from typing import Any

import httpx
import pytest

from mcp_django.client.oauth.flow import PendingAuthorization, UserDeclined, finish_authorization, prepare_authorization
from mcp_django.client.oauth.http import AuthorizationFailed
from mcp_django.client.oauth.token_store import TokenGrant, TokenRow, run_in_thread
from mcp_django.models import ClientToken
from tests.client.authority import ISSUER, REDIRECT, SERVER, Authority, challenge_of, query, settings

pytestmark = pytest.mark.django_db
EVIL = "https://evil.example"


async def begun(authority: Authority, **auth: Any) -> tuple[str, PendingAuthorization]:
    return await prepare_authorization(settings(**auth), None, REDIRECT, http_client=authority.outgoing())


async def ended(authority: Authority, pending: PendingAuthorization, **answer: str) -> TokenGrant:
    said = {"code": "code-1", "iss": ISSUER, **answer}
    answer = {name: value for name, value in said.items() if value}
    return await finish_authorization(settings(), pending, answer, http_client=authority.outgoing())


async def test_the_flow_succeeds() -> None:
    authority = Authority()
    url, pending = await begun(authority)
    asked = query(url)
    assert url.startswith(f"{ISSUER}/authorize?")
    assert asked == {
        "response_type": "code",
        "client_id": "c1",
        "redirect_uri": REDIRECT,
        "state": pending.state,
        "code_challenge": challenge_of(pending.verifier),
        "code_challenge_method": "S256",
        "resource": SERVER,
        "scope": "read",
    }
    grant = await ended(authority, pending)
    assert (grant.access_token, grant.refresh_token, grant.scope, grant.issuer) == ("a0-s3cret", "r0", "read", ISSUER)
    (form,) = authority.forms
    assert (form["code"], form["code_verifier"], form["resource"]) == ("code-1", pending.verifier, SERVER)
    assert (form["client_id"], form["client_secret"], form["redirect_uri"]) == ("c1", "client-s3cret", REDIRECT)


async def test_a_secret_is_sent_with_basic_authentication_by_default(subtests: pytest.Subtests) -> None:
    for supported, basic in [(None, True), (["client_secret_post", "none"], False)]:
        with subtests.test(supported=supported, basic=basic):
            await ClientToken.objects.all().adelete()  # and the registration with it
            authority = Authority()
            authority.registered = {}
            authority.metadata["token_endpoint_auth_methods_supported"] = supported
            await ended(authority, (await begun(authority))[1])
            assert ("authorization" in authority.headers[0], "client_secret" in authority.forms[0]) == (
                basic,
                not basic,
            )


async def test_a_registration_is_used_again_for_the_same_address_only() -> None:
    authority = Authority()
    await begun(authority)
    await begun(authority)
    assert authority.registrations == 1
    await prepare_authorization(settings(), None, "https://moved.example/callback/", http_client=authority.outgoing())
    assert authority.registrations == 2
    authority.metadata["issuer"] = authority.resource["authorization_servers"][0] = "https://id.example/other"
    authority.other["https://id.example/.well-known/oauth-authorization-server/other"] = lambda request: httpx.Response(
        200, json=authority.metadata
    )
    await prepare_authorization(settings(), None, "https://moved.example/callback/", http_client=authority.outgoing())
    assert authority.registrations == 3


async def test_a_client_that_the_settings_name_is_not_registered() -> None:
    authority = Authority()
    url, _pending = await begun(authority, client_id="ours", client_secret="s3cret", issuer=ISSUER)
    assert query(url)["client_id"] == "ours"
    assert authority.registrations == 0


async def test_a_metadata_document_describes_the_client_if_supported() -> None:
    authority, document = Authority(), "https://testserver/mcp/clients/client-metadata.json"
    url, _pending = await begun(authority, client_metadata_url=document)
    assert query(url)["client_id"] == "c1"
    authority = Authority()
    authority.metadata["client_id_metadata_document_supported"] = True
    await run_in_thread(TokenRow(settings()).delete_registration, "c1")
    url, _pending = await begun(authority, client_metadata_url=document)
    assert query(url)["client_id"] == document
    assert authority.registrations == 0


async def test_the_settings_scopes_are_asked_for_instead() -> None:
    url, _pending = await begun(Authority(), scopes=("a", "b"))
    assert query(url)["scope"] == "a b"


async def test_parameters_of_the_endpoint_are_kept_and_do_not_replace_the_clients() -> None:
    authority = Authority()
    authority.metadata["authorization_endpoint"] += "?tenant=1&state=theirs&redirect_uri=https%3A%2F%2Fevil.example"
    asked = query((await begun(authority))[0])
    assert (asked["tenant"], asked["redirect_uri"]) == ("1", REDIRECT)
    assert asked["state"] != "theirs"


async def test_untrusted_metadata_ends_the_flow(subtests: pytest.Subtests) -> None:
    for change, asked in [
        ({"issuer": EVIL}, 0),
        ({"issuer": f"{ISSUER}/"}, 0),
        ({"authorization_endpoint": "javascript:alert(1)"}, 0),
        ({"authorization_endpoint": "http://id.example/authorize"}, 1),
        ({"token_endpoint": "http://id.example/token"}, 1),
        ({"code_challenge_methods_supported": ["plain"]}, 1),
        ({"code_challenge_methods_supported": None}, 1),
        ({"registration_endpoint": "http://127.0.0.1/register"}, 0),
    ]:
        with subtests.test(change=change, asked=asked):
            await ClientToken.objects.all().adelete()  # and the registration with it
            authority = Authority()
            authority.metadata |= change
            with pytest.raises(AuthorizationFailed):
                await begun(authority)
            assert authority.registrations <= asked
            assert authority.forms == []


async def test_a_server_that_refers_to_another_resource_is_refused(subtests: pytest.Subtests) -> None:
    for change in [
        {"resource": "https://other.example/mcp"},
        {"resource": f"{SERVER}/deeper"},
        {"authorization_servers": ["http://127.0.0.1:8500"]},
        {"authorization_servers": ["https://inside.example"]},
    ]:
        with subtests.test(change=change):
            await ClientToken.objects.all().adelete()  # and the registration with it
            authority = Authority()
            authority.addresses["inside.example"] = ["10.0.0.1"]
            authority.resource |= change
            with pytest.raises(AuthorizationFailed):
                await begun(authority)
            assert not any("inside" in url or "127.0.0.1" in url for _method, url in authority.asked)


async def test_a_redirect_of_metadata_into_the_network_is_refused() -> None:
    authority = Authority()
    authority.addresses["inside.example"] = ["169.254.169.254"]
    moved = httpx.Response(302, headers={"Location": "https://inside.example/latest/meta-data"})
    authority.other["https://id.example/.well-known/oauth-authorization-server"] = lambda request: moved
    with pytest.raises(AuthorizationFailed):
        await begun(authority)
    assert not any("inside" in url for _method, url in authority.asked)


async def test_invalid_metadata_ends_the_flow(subtests: pytest.Subtests) -> None:
    for body in [b"", b"{", b"[]", b"null", b'"x"', b"[" * 20_000, b"{}" * 200_000, b"\xff"]:
        with subtests.test(body=body):
            await ClientToken.objects.all().adelete()  # and the registration with it
            authority = Authority()
            authority.other["https://id.example/.well-known/oauth-authorization-server"] = lambda request, body=body: (
                httpx.Response(200, content=body)
            )
            with pytest.raises(AuthorizationFailed):
                await begun(authority)


async def test_an_unusable_registration_ends_the_flow(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for answer in [
        httpx.Response(400, json={"error": "invalid_redirect_uri", "error_description": "s3cret"}),
        httpx.Response(201, json={"client_secret": "s3cret"}),
        httpx.Response(201, json={"client_id": "c", "token_endpoint_auth_method": "private_key_jwt"}),
        httpx.Response(201, json={"client_id": ["s3cret"]}),
        httpx.Response(302, headers={"Location": "https://evil.example/?s3cret"}),
    ]:
        with subtests.test(answer=answer):
            await ClientToken.objects.all().adelete()  # and the registration with it
            authority = Authority()
            authority.other["https://id.example/register"] = lambda request, answer=answer: answer
            with caplog.at_level(logging.DEBUG), pytest.raises(AuthorizationFailed) as caught:
                await begun(authority)
            assert "s3cret" not in str(caught.value) + caplog.text


async def test_a_secret_goes_to_its_issuer_only() -> None:
    authority = Authority()
    with pytest.raises(AuthorizationFailed):
        await begun(authority, client_id="ours", client_secret="s3cret", issuer="https://our-id.example")
    assert (authority.registrations, authority.forms) == (0, [])


async def test_a_code_of_another_issuer_is_not_sent(subtests: pytest.Subtests) -> None:
    for iss in [EVIL, f"{ISSUER}/", "", "HTTPS://ID.EXAMPLE"]:
        with subtests.test(iss=iss):
            await ClientToken.objects.all().adelete()  # and the registration with it
            authority = Authority()
            _url, pending = await begun(authority)
            with pytest.raises(AuthorizationFailed, match="from another authorization server"):
                await ended(authority, pending, iss=iss)
            assert authority.forms == []


async def test_an_error_of_another_issuer_is_ignored() -> None:
    authority = Authority()
    _url, pending = await begun(authority)
    with pytest.raises(AuthorizationFailed) as caught:
        await ended(authority, pending, iss=EVIL, error="access_denied")
    assert not isinstance(caught.value, UserDeclined)


async def test_a_denied_authorization_is_recognized() -> None:
    authority = Authority()
    _url, pending = await begun(authority)
    with pytest.raises(UserDeclined):
        await ended(authority, pending, error="access_denied", error_description="<b>")


async def test_an_invalid_authorization_response_ends_the_flow(subtests: pytest.Subtests) -> None:
    for answer in [{"code": ""}, {"code": "x" * 5000}, {"error": "<script>", "error_description": "<script>"}]:
        with subtests.test(answer=answer):
            await ClientToken.objects.all().adelete()  # and the registration with it
            authority = Authority()
            _url, pending = await begun(authority)
            with pytest.raises(AuthorizationFailed) as caught:
                await ended(authority, pending, **answer)
            assert "<" not in str(caught.value)
            assert authority.forms == []


async def test_an_unusable_token_ends_the_flow(caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests) -> None:
    for answer in [
        httpx.Response(200, content=b"s3cret"),
        httpx.Response(200, json={"access_token": "s3cret", "token_type": "DPoP"}),
        httpx.Response(200, json={"access_token": "s3cret\r\nX: y", "token_type": "Bearer"}),
        httpx.Response(200, json={"access_token": "s3crét", "token_type": "Bearer"}),
        httpx.Response(200, json={"access_token": "", "token_type": "Bearer"}),
        httpx.Response(200, json={"access_token": "s3cret" * 9000, "token_type": "Bearer"}),
        httpx.Response(200, json={"access_token": ["s3cret"], "token_type": "Bearer"}),
        httpx.Response(400, json={"error": "invalid_grant", "error_description": "s3cret"}),
        httpx.Response(500, text="s3cret"),
        httpx.Response(302, headers={"Location": "https://evil.example/s3cret"}),
    ]:
        with subtests.test(answer=answer):
            await ClientToken.objects.all().adelete()  # and the registration with it
            authority = Authority()
            _url, pending = await begun(authority)
            authority.other["https://id.example/token"] = lambda request, answer=answer: answer
            with caplog.at_level(logging.DEBUG), pytest.raises(AuthorizationFailed) as caught:
                await ended(authority, pending)
            assert "s3cret" not in str(caught.value) + caplog.text


async def test_a_server_without_metadata_is_its_own_authorization_server() -> None:
    """As 2025-03-26 specifies."""
    authority = Authority()
    authority.challenge = "Bearer"
    authority.other["https://mcp.example/register"] = lambda request: httpx.Response(201, json={"client_id": "old"})
    authority.other["https://mcp.example/token"] = lambda request: httpx.Response(200, json={"access_token": "a"})
    url, pending = await begun(authority)
    assert url.startswith("https://mcp.example/authorize?")
    with pytest.raises(AuthorizationFailed):
        await ended(authority, pending, iss=ISSUER)
    grant = await ended(authority, pending, iss="")
    assert (grant.issuer, grant.token_endpoint) == ("https://mcp.example", "https://mcp.example/token")
    assert (grant.expires_at, grant.refresh_token) == (None, None)


async def test_a_challenge_is_not_needed(subtests: pytest.Subtests) -> None:
    for challenge in ["", "Basic", 'Bearer scope="<b>"', 'Bearer resource_metadata="http://127.0.0.1"']:
        with subtests.test(challenge=challenge):
            await ClientToken.objects.all().adelete()  # and the registration with it
            authority = Authority()
            authority.challenge = challenge
            authority.other["https://mcp.example/.well-known/oauth-protected-resource/mcp"] = (
                lambda request, authority=authority: httpx.Response(200, json=authority.resource)
            )
            if "127.0.0.1" in challenge:
                with pytest.raises(AuthorizationFailed):
                    await begun(authority)
            else:
                assert (await begun(authority))[0].startswith(ISSUER)
