"""`manage.py mcp_createclient`."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from oauth2_provider.models import Application

from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.tokens.credentials import has_secret
from tests.support.savepoints import rolled_back

pytestmark = pytest.mark.django_db
CALLBACK = "https://client.example/cb"
URL = "https://vendor.example/client.json"


def create(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[Application, ClientProfile, list[str]]:
    call_command("mcp_createclient", *args)
    lines = capsys.readouterr().out.splitlines()
    application = Application.objects.get(client_id=lines[0])
    return application, ClientProfile.objects.get(application=application), lines[1:]


def test_a_client_of_the_code_grant_is_public_unless_it_is_confidential(capsys: Any) -> None:
    application, profile, rest = create(capsys, "Desk", "--redirect-uri", CALLBACK)
    assert rest == []
    assert application.client_type == "public"
    assert application.authorization_grant_type == "authorization-code"
    assert (profile.source, profile.approved, profile.trusted) == ("manual", True, False)
    assert (profile.allowed_scopes, profile.allowed_resources) == (None, None)
    application, _, rest = create(capsys, "Web", "--redirect-uri", CALLBACK, "--confidential")
    assert application.client_type == "confidential"
    assert has_secret(application, rest[0])
    assert not has_secret(application, application.client_secret)


def test_a_client_with_a_service_user_asks_no_user(capsys: Any) -> None:
    robot = get_user_model().objects.create(username="robot")
    args = ["--service-user", "robot", "--scope", "b", "--scope", "a", "--resource", "https://testserver/mcp"]
    application, profile, rest = create(capsys, "Robot", *args)
    assert application.client_type == "confidential"
    assert application.authorization_grant_type == "client-credentials"
    assert len(rest) == 1
    assert (profile.trusted, profile.service_user) == (True, robot)
    assert profile.allowed_scopes == ["a", "b"]
    assert profile.allowed_resources == ["https://testserver/mcp"]


def test_a_client_with_neither_gets_no_tokens_and_has_a_secret(capsys: Any) -> None:
    application, profile, rest = create(capsys, "Gateway")
    assert len(rest) == 1
    assert application.authorization_grant_type == "client-credentials"
    assert (profile.trusted, profile.service_user) == (False, None)


def test_a_document_is_kept_as_the_operator_has_it(capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "client.json"
    metadata: dict[str, Any] = {"client_id": URL, "client_name": "Vendor", "redirect_uris": [CALLBACK]}
    file.write_bytes(orjson.dumps(metadata))
    application, profile, rest = create(capsys, URL, "--document", str(file))
    assert (application.client_id, application.name, application.cimd_expires_at) == (URL, "Vendor", None)
    assert (profile.source, profile.document_url, len(profile.document_hash)) == ("document", URL, 64)
    assert rest == []
    file.write_bytes(orjson.dumps({**metadata, "client_name": "Other"}))
    application, _, _ = create(capsys, URL, "--document", str(file))
    assert application.name == "Other"
    assert Application.objects.count() == 1


def test_unknown_scopes_and_servers_are_reported(settings: Any, capsys: Any) -> None:
    settings.MCP = {"AUTH": ["oauth"], "ORIGIN": "https://testserver", "SCOPES": {"notes:read": "Read notes"}}
    known = ["--scope", "notes:read", "--resource", "https://testserver/mcp"]
    call_command("mcp_createclient", "Robot", *known)
    assert "not in the settings" not in capsys.readouterr().err
    call_command("mcp_createclient", "Robot", *known, "--scope", "notes:raed", "--resource", "https://testserver/mpc")
    warnings = capsys.readouterr().err
    assert "'notes:raed' is not in the settings" in warnings
    assert "'https://testserver/mpc' is not in the settings" in warnings


CONTRADICTIONS: list[tuple[list[str], str]] = [
    (["x", "--redirect-uri", "http://evil.example/"], "own machine"),
    (["x", "--redirect-uri", "evil:/cb"], "scheme"),
    (["x", "--redirect-uri", CALLBACK, "--service-user", "robot"], "does not request consent"),
    (["x", "--service-user", "nobody"], "Unknown user"),
    (["x", "--service-user", "gone"], "not active"),
    (["x", "--scope", "a b"], "not a scope"),
    (["x" * 101], "name"),
    (["  "], "name"),
    (["a\u202eb"], "name"),
    ([URL, "--document", "/nowhere/client.json"], "Reading the document failed"),
    ([URL, "--document", "/nowhere/client.json", "--confidential"], "cannot be combined"),
]


def test_an_inconsistent_client_is_not_created(subtests: pytest.Subtests) -> None:
    for args, why in CONTRADICTIONS:
        with subtests.test(args=args), rolled_back():
            get_user_model().objects.create(username="robot")
            get_user_model().objects.create(username="gone", is_active=False)
            with pytest.raises(CommandError, match=why):
                call_command("mcp_createclient", *args)
            assert not Application.objects.exists()


def test_other_files_are_not_pinned(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for text in (b"", b"{}", b"[]", b'{"client_id": "https://other.example/c.json"}', b"x" * 20_000):
        with subtests.test(text=text), rolled_back():
            file = tmp_path / "client.json"
            file.write_bytes(text)
            with pytest.raises(CommandError):
                call_command("mcp_createclient", URL, "--document", str(file))


def test_a_document_cannot_take_the_id_of_a_client_made_by_an_operator(tmp_path: Path) -> None:
    Application.objects.create(client_id=URL, name="ours", client_type="public", authorization_grant_type="password")
    file = tmp_path / "client.json"
    file.write_bytes(orjson.dumps({"client_id": URL, "client_name": "Vendor", "redirect_uris": [CALLBACK]}))
    with pytest.raises(CommandError, match="does not come from a document"):
        call_command("mcp_createclient", URL, "--document", str(file))
    assert Application.objects.get(client_id=URL).name == "ours"


def test_the_stored_value_is_the_secret_only_without_hashing(subtests: pytest.Subtests) -> None:
    """Also when the hasher it was made by is not among PASSWORD_HASHERS any more."""
    for hashed in (True, False):
        with subtests.test(hashed=hashed):
            stored = "retired$1$salt$5f4dcc3b"
            application = Application(client_type="confidential", client_secret=stored, hash_client_secret=hashed)
            assert has_secret(application, stored) is not hashed
