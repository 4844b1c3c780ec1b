"""The recipes about rights: staff, hidden fields and rows, tenants, service accounts and tokens of a project."""

import json
import re
import shlex
import sys
import unittest
from types import ModuleType
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.core.management import call_command
from django.test import Client

from mcp_django import Context, ModelToolset, conf, register
from mcp_django.auth.authentication.verifiers import AuthError
from mcp_django.auth.authorization.scopes import PrincipalRefused, ScopeFilter
from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.protocol.errors import InvalidParams, MCPError
from mcp_django.server.primitives import registry
from tests.recipes.pages import RECIPES, Recipe, block_with, settings_with
from tests.repository.pages import import_shop
from tests.shop.models import Order, Product

pytestmark = pytest.mark.django_db


async def names(client: Any) -> list[str]:
    """Return the names of the listed tools."""
    return sorted(tool["name"] for tool in await client.list_tools())


async def test_tools_for_staff_are_hidden_from_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe("staff-only", "class Office", monkeypatch)
    boss = await User.objects.acreate(username="boss", is_staff=True, is_superuser=True)
    clerk = await User.objects.acreate(username="clerk", is_staff=True)
    root = await User.objects.acreate(username="root", is_superuser=True)
    assert await names(recipe.client(boss)) == ["office_open_orders", "restart_import"]
    assert await names(recipe.client(clerk)) == ["restart_import"]
    client = recipe.client(root)
    assert await names(client) == []
    with pytest.raises(InvalidParams):
        await client.call_tool("restart_import", {})
    assert len(await names(recipe.client())) == 2


async def test_a_server_for_staff_refuses_others(settings: Any) -> None:
    settings.MCP = settings_with("staff-only", "AUTHORIZER")
    assert conf.get_problems() == []
    access: dict[str, Any] = {}
    exec(block_with("staff-only", "def staff_only"), access)
    authorizer = ScopeFilter(authorize=access["staff_only"])
    boss = DjangoPrincipal(issuer="django", subject="1", user=User(is_staff=True))
    assert await authorizer.filter_scopes(boss) is not None
    for user in (User(), AnonymousUser(), None):
        with pytest.raises(PrincipalRefused):
            await authorizer.filter_scopes(DjangoPrincipal(issuer="django", subject="2", user=user))


async def test_a_price_is_shown_to_buyers_alone(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    clerk, buyer = [await User.objects.acreate(username=name) for name in ("clerk", "buyer")]
    for user, codenames in ((clerk, ["view_product"]), (buyer, ["view_product", "change_product"])):
        await user.user_permissions.aset([p async for p in Permission.objects.filter(codename__in=codenames)])
    await Product.objects.acreate(name="Tea", price=3, cost=1)
    recipe = Recipe("hide-a-field", "purchase_price", monkeypatch)
    for user, price in ((clerk, None), (buyer, "1.00")):
        client = recipe.client(user)
        [row] = (await client.call_tool("product_list", {}))["structuredContent"]["items"]
        assert row["purchase_price"] == price
        for asked in ({"filters": {"cost__gt": 0}}, {"order_by": ["cost"]}, {"order_by": ["purchase_price"]}):
            assert (await client.call_tool("product_list", asked))["isError"]

    module = Recipe("hide-a-field", "PurchasedProducts", monkeypatch).module
    assert module.PurchasedProducts.permission == "shop.change_product"
    assert registry.get_registry("staff").problems == []


async def test_a_tenant_is_for_its_members(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.MCP = settings_with("multi-tenant", "<slug:tenant>")
    assert conf.get_problems() == []
    users = {}
    for tenant, name in (("red", "ada"), ("red", "bob"), ("blue", "eve")):
        group, _ = await Group.objects.aget_or_create(name=tenant)
        users[name] = await User.objects.acreate(username=name, is_superuser=True)
        await users[name].groups.aadd(group)
        await Order.objects.acreate(owner=users[name], reference=name)
    tenancy: dict[str, Any] = {}
    exec(block_with("multi-tenant", "select_tenant(call"), tenancy)
    recipe = Recipe("multi-tenant", "def colleagues", monkeypatch)

    def client(name: str, tenant: str) -> Any:
        return recipe.client(users[name], middleware=[tenancy["select_tenant"]], kwargs={"tenant": tenant})

    found = await client("ada", "red").call_tool("colleagues", {})
    assert found["structuredContent"]["result"] == ["ada", "bob"]
    rows = (await client("eve", "blue").call_tool("order_list", {}))["structuredContent"]["items"]
    assert [row["reference"] for row in rows] == ["eve"]
    for method in ("list_tools", "list_resources"):
        with pytest.raises(MCPError, match="Unknown tenant"):
            await getattr(client("eve", "red"), method)()


def test_the_job_of_ci_calls_a_tool_with_its_token(
    monkeypatch: pytest.MonkeyPatch, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (RECIPES / "service-account.md").read_text(encoding="utf-8")
    monkeypatch.setattr(registry, "REGISTRIES", {})
    register(type("Orders", (ModelToolset,), {"model": Order, "fields": ["note"]}))
    User.objects.create_user("alice")
    settings.MCP = {"AUTH": "token", "SCOPES": {"orders:read": "See your orders"}}
    [line] = re.findall(r"^python manage.py (mcp_createaccount (?:.*\\\n)*.+)$", page, re.MULTILINE)
    call_command(*shlex.split(line.replace("\\\n", " ")))
    token = capsys.readouterr().out.strip()
    robot = User.objects.get(username="ci")
    assert not robot.has_usable_password()
    assert robot.get_all_permissions() == {"shop.view_order"}

    [workflow] = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    script = yaml.safe_load(workflow)["jobs"]["count"]["steps"][0]["run"]
    headers = dict(re.findall(r"-H ['\"]([\w-]+): ([^'\"]+)['\"]", script))
    headers |= {"Host": "testserver", "Authorization": headers["Authorization"].replace("$MCP_TOKEN", token)}
    [body] = re.findall(r"-d '(.*)'", script, re.DOTALL)
    json.loads(body)
    response = Client().post("/mcp", body, content_type=headers.pop("Content-Type"), headers=headers)
    assert response.status_code == 200, response.content
    assert response.json()["result"]["structuredContent"] == {"count": 0}
    headers["Authorization"] = "Bearer mcp_wrong"
    assert Client().post("/mcp", body, content_type="application/json", headers=headers).status_code == 401


class Tokens:
    """The manager of the tokens of Django REST framework, without its table."""

    def __init__(self, user: User) -> None:
        self.user = user

    def select_related(self, *names: str) -> "Tokens":
        """Return the same tokens."""
        return self

    def filter(self, key: str) -> "Tokens":
        """Choose a token."""
        self.key = key
        return self

    async def afirst(self) -> Any:
        """Return the token, if it exists."""
        return type("Token", (), {"user": self.user}) if self.key == "a" * 40 else None


async def test_tokens_of_the_api_are_verified(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.MCP = settings_with("custom-authentication", "AUTH")
    assert conf.get_problems() == []
    ada = await User.objects.acreate(username="ada")
    models = ModuleType("rest_framework.authtoken.models")
    models.Token = type("Token", (), {"objects": Tokens(ada)})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, models.__name__, models)
    tokens: dict[str, Any] = {}
    exec(block_with("custom-authentication", "class APITokens"), tokens)
    verifier = tokens["APITokens"]()
    assert verifier.accepts("a" * 40)
    assert not any(verifier.accepts(token) for token in ("mcp_" + "a" * 36, "a" * 39, "eyJh.eyJz.c2ln", "A" * 40))
    principal = await verifier.verify("a" * 40, resource="https://shop.example.com/mcp")
    assert (principal.owner, principal.user, principal.scopes) == (f"django|{ada.pk}", ada, {"orders:read"})
    with pytest.raises(AuthError):
        await verifier.verify("b" * 40, resource="")
    ada.is_active = False
    with pytest.raises(AuthError):
        await verifier.verify("a" * 40, resource="")


@pytest.mark.parametrize(("filtered", "failures"), [(True, 0), (False, 1)])
def test_the_tests_of_hidden_rows_pass_and_notice_a_leak(
    filtered: bool, failures: int, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(registry, "REGISTRIES", {})
    settings.MCP = {**settings.MCP}

    class Orders(ModelToolset):
        model = Order
        fields = ["reference"]
        search_fields = ["reference"]
        list_filter = ["reference"]

        def get_queryset(self, ctx: Context) -> Any:
            orders = super().get_queryset(ctx)
            return orders.filter(owner=ctx.user) if filtered else orders

    register(Orders)
    import_shop(monkeypatch)
    assert failed_tests() == failures


def failed_tests() -> int:
    """Run the tests of the page, and count failures."""
    found: dict[str, Any] = {"__name__": "example.tests"}
    exec(compile(block_with("test-what-is-hidden", "TestCase"), "page", "exec"), found)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(found["HiddenOrderTests"])
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun == 3
    assert result.errors == []
    return len(result.failures)
