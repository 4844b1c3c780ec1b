"""The pages in a browser, by keyboard alone."""

from django.contrib.auth.models import User

from mcp_django.contrib.oauth import toolkit_compat
from mcp_django.contrib.oauth.flows import consents
from mcp_django.contrib.oauth.models import Consent
from mcp_django.models import PersonalAccessToken
from tests.browser.conftest import PHONE, Open
from tests.contrib.oauth.oauth_client import ISSUER, LOOPBACK, MCP, SCOPES, WEB, Source, authorization_path, make_client


def test_a_scope_is_unticked_and_the_rest_granted(open_page: Open) -> None:
    keys = open_page(authorization_path(make_client(source=Source.DOCUMENT)))
    keys.to("Change airports").press("Space").to("Allow")
    query = keys.leave("Enter", WEB)
    assert (query["state"], query["iss"]) == ("st-1", ISSUER)
    assert "code" in query
    assert toolkit_compat.get_grant_model().objects.get().scope == "airports:read"


def test_the_tab_order_of_the_consent_page_is_its_reading_order(open_page: Open) -> None:
    keys = open_page(authorization_path(make_client(LOOPBACK), redirect_uri=LOOPBACK), width=PHONE)
    stops = [stop.splitlines()[0] for stop in keys.stops()]
    assert stops == ["Skip to content", "Not you?", *SCOPES.values(), "Cancel", "Allow", "Details"]


def test_cancel_redirects_with_an_error(open_page: Open) -> None:
    keys = open_page(authorization_path(make_client())).to("Cancel")
    query = keys.leave("Enter", WEB)
    assert (query["error"], query["state"], query["iss"]) == ("access_denied", "st-1", ISSUER)
    assert not Consent.objects.exists()


def test_enter_on_a_checkbox_grants_nothing(open_page: Open) -> None:
    keys = open_page(authorization_path(make_client())).to("Look up airports")
    assert keys.leave("Enter", WEB)["error"] == "access_denied"


def test_a_program_on_this_computer_gets_the_redirect(open_page: Open) -> None:
    uri = "http://localhost:33418/callback"
    keys = open_page(authorization_path(make_client(LOOPBACK), redirect_uri=uri)).to("Allow")
    assert "code" in keys.leave("Enter", uri)


def test_a_program_on_this_computer_may_send_the_browser_on(open_page: Open, listener: str) -> None:
    keys = open_page(authorization_path(make_client(LOOPBACK), redirect_uri=listener)).to("Allow")
    keys.leave("Enter", f"{WEB}/done")


def test_a_form_without_ticked_scopes_shows_an_error(open_page: Open) -> None:
    keys = open_page(authorization_path(make_client()))
    keys.to("Look up").press("Space").to("Change").press("Space").to("Allow").submit()
    assert "Nothing is selected" in keys.page.get_by_role("alert").inner_text()
    keys.to("Look up").press("Space").to("Allow")
    assert "code" in keys.leave("Enter", WEB)


def test_details_can_be_opened(open_page: Open) -> None:
    keys = open_page(authorization_path(make_client())).to("Details").press("Enter")
    assert keys.page.get_by_text(MCP).is_visible()
    assert keys.next()["text"] == "Connected applications"


def test_another_user_logs_in(open_page: Open) -> None:
    User.objects.create_user("bob", password="secret")
    keys = open_page(authorization_path(make_client())).to("Not you?")
    keys.leave("Enter", keys.page.url.partition("/o/")[0] + "/accounts/login/")
    keys.page.get_by_label("Username").focus()
    keys.write("bob").press("Tab").write("secret").submit()
    assert "Signed in as bob" in keys.page.get_by_role("main").inner_text()


def test_access_is_taken_away(open_page: Open, person: User) -> None:
    consents.record_consent(person, make_client(source=Source.DOCUMENT), [MCP], SCOPES, WEB)
    keys = open_page("/o/connections/").to("Take access away").press("Enter").to("Take it away now").submit()
    assert keys.page.get_by_role("status").inner_text() == "Access of Claude was withdrawn."
    assert Consent.objects.get().revoked is not None


def test_a_token_is_made_and_revoked(open_page: Open, person: User) -> None:
    keys = open_page("/o/tokens/", width=PHONE)
    keys.to("Name").write("CI").to("Look up airports").press("Space").to("Make the token").submit()
    keys.page.wait_for_function("document.activeElement?.value")
    token = keys.focused()["value"]
    row = PersonalAccessToken.objects.get()
    assert row.token_hash == PersonalAccessToken.hash(token)
    assert (row.name, row.scopes) == ("CI", ["airports:read"])
    keys.to("I have copied it").submit()
    assert token not in keys.page.content()
    keys.to("Revoke").press("Enter").to("Revoke it now").submit()
    assert keys.page.get_by_role("status").inner_text() == "The token “CI” was revoked."
    row.refresh_from_db()
    assert not row.is_usable


def test_an_error_of_the_form_is_shown_at_its_field(open_page: Open, person: User) -> None:
    keys = open_page("/o/tokens/").to("Make the token").submit()
    field = keys.page.get_by_label("Name")
    assert field.get_attribute("aria-invalid") == "true"
    described = field.get_attribute("aria-describedby") or ""
    assert "required" in keys.page.locator(f"#{described.split()[-1]}").inner_text()
