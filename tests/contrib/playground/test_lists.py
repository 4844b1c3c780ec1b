"""Lists of the playground, links to calls, templates and suggestions."""

import html
import json
import re
from secrets import token_hex
from urllib.parse import parse_qs, urlsplit

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from mcp_django import Server
from mcp_django.auth.principal import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal
from mcp_django.contrib.playground.links import build_call_link, get_link_sealer, remove_secrets
from mcp_django.models import ToolPolicy
from mcp_django.observability import Call
from tests.contrib.control_room.test_rows import make_record
from tests.contrib.playground.test_playground import (
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


def find_link(page: str) -> str:
    """Return the URL of the link to a call."""
    link = re.search(r'href="([^"]*)" id="call-link"', page)
    assert link is not None
    return urlsplit(build_url()).path + html.unescape(link[1])


def test_a_link_opens_the_form_with_the_arguments(browser: Client) -> None:
    page = post(
        browser, "repeat", _act="show", **{"text": "a&b", "count": "2", "address/city": "Oslo", "_null-tags": "on"}
    )
    link = find_link(page)
    query = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    sealed = query.pop("arguments")
    assert query == {"server": "played", "kind": "tools", "as": "staff", "name": "repeat"}
    opened = log_in("use_playground", name="another").get(link.replace("as=staff&", ""))
    assert opened.context["form"].build_arguments() == json.loads(read_text(page, "message"))["params"]["arguments"]
    assert "a&amp;b</textarea>" in opened.content.decode()
    unfit = browser.get(urlsplit(link).path + (build_call_link(query, {}, {"text": 5}) or "")).content.decode()
    assert "The form cannot show these arguments" in unfit
    assert "&quot;text&quot;: 5" in unfit
    for name, text in (("repeat", "{"), ("repeat", '{"text": "a"}'), ("repeat", "x" * 9000), ("write", sealed)):
        page = browser.get(build_url(name, arguments=text)).content.decode()
        assert "damaged or have expired" in page
        assert "Oslo" not in page


def test_the_link_of_a_recorded_call_reads_its_arguments_from_the_row(server: Server) -> None:
    rights = ("use_playground", "view_calllogentry", "view_call_arguments")
    entry = make_record(timezone.now(), server="played", name="repeat", arguments='{"text": "swordfish"}')
    allowed = log_in(*rights, name="allowed")
    url = build_url("repeat", call=str(entry.pk))
    assert allowed.get(url).context["form"].build_arguments() == {"text": "swordfish"}
    without = [log_in(*(right for right in rights if right != missing), name=missing) for missing in rights[1:]]
    others = [build_url("write", call=str(entry.pk)), build_url("repeat", call="0"), build_url("repeat", call="x" * 30)]
    for page in (*(each.get(url) for each in without), *map(allowed.get, others)):
        text = page.content.decode()
        assert "you may not see them" in text
        assert "swordfish" not in text


def test_no_url_of_the_page_has_an_argument(browser: Client) -> None:
    page = post(browser, "repeat", _act="show", **{"text": "swordfish", "address/city": "swordfish"})
    urls = re.findall(r'(?:href|action|src|data-[\w-]+)="([^"]*)"', page)
    assert find_link(page).partition("?")[2] in "".join(map(html.unescape, urls))
    assert not any("swordfish" in url for url in urls)
    assert page.count("swordfish") > 2


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
    query = {"server": "played", "kind": "tools", "name": "a"}
    token = parse_qs((build_call_link(query, schema, arguments) or "")[1:])["arguments"][0]
    assert get_link_sealer().unseal(token, b"['played', 'tools', 'a']") == {"who": {"name": "ada"}, "n": 1}
    assert build_call_link(query, {}, {"text": token_hex(5000)}) is None
    assert remove_secrets({"properties": {"more": {}}}, {"more": {"a": 1}, "x": 2}) == {"more": {"a": 1}, "x": 2}
