"""Lists of the playground, links to calls, templates and suggestions."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client

from mcp_django import Server
from mcp_django.auth.principal import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal
from mcp_django.contrib.control_room.playground.links import build_call_link, remove_secrets
from mcp_django.models import ToolPolicy
from mcp_django.observability import Call
from tests.contrib.control_room.test_playground import (
    browser,
    build_url,
    change,
    log_in,
    post,
    read_text,
    received,
    server,
)
from tests.server.client import PipelineClient

__all__ = ["browser", "change", "received", "server"]
pytestmark = pytest.mark.django_db


def read_rows(page: str) -> dict[str, str]:
    """Return the rows that are shown, with the reasons of those that the user does not see."""
    found = re.findall(r"<li data-text=\"[^\"]*\">(?:<s>|<a [^>]*>)(.*?)</(?:s|a)>(.*?)</li>", page)
    return {key: re.sub("<[^>]*>", "", rest).strip() for key, rest in found}


def test_hidden_entries_are_shown_to_those_who_may_see_the_rights_of_others(server: Server) -> None:
    User.objects.create_user("ada")
    as_ada = build_url(**{"as": "ada"})
    plain = log_in("use_playground", "use_playground_as", "add_user", name="plain").get(as_ada).content.decode()
    assert "secret" not in plain
    allowed = log_in("use_playground", "use_playground_as", "view_access", name="allowed")
    rows = read_rows(allowed.get(as_ada).content.decode())
    assert rows["secret"] == "hidden: lacks the permission auth.add_user"
    assert {name for name, reason in rows.items() if reason} == {"secret"}
    # A struck out name has no form, and nothing is sent.
    assert allowed.get(build_url("secret", **{"as": "ada"})).context["entry"] is None
    assert not any(read_rows(allowed.get(build_url(kind="prompts", **{"as": "ada"})).content.decode()).values())


def test_the_lists_of_a_user_are_those_that_the_user_gets_as_a_client(server: Server) -> None:
    ada = User.objects.create_user("ada")
    ToolPolicy.objects.create(tool="draw", groups=["Painters"])
    operator = log_in("use_playground", "use_playground_as", "add_user")
    principal = DjangoPrincipal(issuer=PROJECT_ISSUER, subject=str(ada.pk), user=ada, scopes=ALL_SCOPES)
    client = PipelineClient(server, principal)

    listed = {kind: set(async_to_sync(client.names)(f"{kind}/list", kind)) for kind in ("tools", "prompts")}
    pages = {kind: operator.get(build_url(kind=kind, **{"as": "ada"})) for kind in listed}
    assert {kind: set(read_rows(page.content.decode())) for kind, page in pages.items()} == listed
    assert {"draw", "secret"}.isdisjoint(listed["tools"])
    assert "whoami" in listed["tools"]


def test_a_filter_keeps_the_chosen_entry(browser: Client) -> None:
    page = browser.get(build_url("whoami", q="RE")).content.decode()
    assert set(read_rows(page)) == {"repeat"}
    assert 'value="RE"' in page
    assert "<h2>whoami</h2>" in page


def test_a_template_has_a_field_for_each_variable(browser: Client, received: list[Call]) -> None:
    name = "notes://by/{name}{?of,on}"
    page = post(browser, name, "resources", name="a&b", of="", _act="show")
    assert '<code id="expanded-uri">notes://by/a%26b</code>' in page
    assert json.loads(read_text(page, "message"))["params"]["uri"] == "notes://by/a%26b"
    for fields in ({"name": ""}, {"name": "a/b"}, {"_act": "send_json", "_arguments": '{"name": [1]}'}):
        assert 'class="errornote"' in post(browser, name, "resources", **fields)
    assert received == []
    # A resource that is not listed has a form as well; the server decides.
    assert "note ada" in post(browser, "notes://by/ada", "resources", uri="notes://by/ada")
    assert "Resource not found" in post(browser, "notes://nowhere/ada", "resources", uri="notes://nowhere/ada")


def test_arguments_of_prompts_and_variables_get_suggestions(browser: Client) -> None:
    assert (
        '<datalist id="id_argument-name_list"></datalist>'
        in browser.get(build_url("welcome", "prompts")).content.decode()
    )
    page = post(browser, "welcome", "prompts", name="A", place="b", _suggest="name", _act="")
    assert re.findall(r'<option value="(.*?)">', page) == ["Ada b", "Alan b"]
    assert 'name="argument-name" value="A"' in page
    assert 'id="answer"' not in page
    page = post(browser, "notes://by/{name}{?of,on}", "resources", _suggest="name", _act="")
    assert '<option value="a&lt;b&gt;">' in page
    data = {"suggest": "name", "argument-name": "G"}
    url = build_url("welcome", "prompts")
    answer = browser.post(url, data, headers={"Accept": "application/json"})
    assert answer.json() == {"values": ["Grace"]}
    assert browser.post(url, {"suggest": "x"}, headers={"Accept": "application/json"}).json() == {"values": []}
    assert "data-suggest" not in browser.get(build_url("repeat")).content.decode()
    assert "<textarea" in post(browser, "welcome", "prompts", name="A\nB", _act="show")


def test_a_link_opens_the_form_with_the_arguments(browser: Client) -> None:
    page = post(
        browser, "repeat", _act="show", **{"text": "a&b", "count": "2", "address/city": "Oslo", "_null-tags": "on"}
    )
    link = re.search(r'href="([^"]*)" id="call-link"', page)
    assert link is not None
    query = parse_qs(urlsplit(link[1].replace("&amp;", "&")).query)
    assert {name: values[0] for name, values in query.items() if name != "arguments"} == {
        "server": "played",
        "kind": "tools",
        "as": "staff",
        "name": "repeat",
    }
    opened = browser.get(build_url("repeat", arguments=query["arguments"][0]))
    assert opened.context["form"].build_arguments() == json.loads(read_text(page, "message"))["params"]["arguments"]
    assert "a&amp;b</textarea>" in opened.content.decode()
    unfit = browser.get(build_url("repeat", arguments='{"text": 5}')).content.decode()
    assert "The form cannot show these arguments" in unfit
    assert "&quot;text&quot;: 5" in unfit
    for text in ("{", "[1]", "[" * 5000):
        assert 'class="errornote"' in browser.get(build_url("repeat", arguments=text)).content.decode()


def test_links_contain_no_passwords_and_are_short() -> None:
    login = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "password": {"type": "string", "format": "password"}},
    }
    schema = {
        "properties": {"who": login, "key": {"type": "string", "writeOnly": True}, "more": {}, "n": {"type": "integer"}}
    }
    arguments = {"who": {"name": "ada", "password": "pw"}, "key": "pw", "more": {"password": "pw"}, "n": 1, "x": "pw"}
    assert remove_secrets(schema, arguments) == {"who": {"name": "ada"}, "n": 1}
    assert "pw" not in (build_call_link({"name": "a"}, schema, arguments) or "pw")
    assert build_call_link({}, {}, {"text": "x" * 10_000}) is None
    assert remove_secrets({"properties": {"more": {}}}, {"more": {"a": 1}, "x": 2}) == {"more": {"a": 1}, "x": 2}
