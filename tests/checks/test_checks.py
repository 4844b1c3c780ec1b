import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.checks import CheckMessage, run_checks
from django.db import models
from django.test import override_settings
from django.test.utils import isolate_apps

from mcp_django import ModelInline, ModelToolset, action, checks, register, tool
from mcp_django.checks import authentication, declarations, permissions
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.decorators import register_completer, register_tool
from tests.shop.models import Line, Order, Parcel

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.django_db  # since Django 6.1 a check of JSONField asks the database for its features


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests declare things for servers of their own."""
    monkeypatch.setattr(registry, "REGISTRIES", {"default": registry.Registry("default", strict=False)})
    monkeypatch.setattr(registry, "MARKED_METHODS", registry.MarkedMethods())


def used_ids() -> list[str]:
    """Every id that a check gives, errors first."""
    sources = "".join(path.read_text() for path in (ROOT / "mcp_django").rglob("*.py"))
    return sorted(set(re.findall(r'"mcp_django\.([EWI]\d+)"', sources)), key=lambda id: ("EWI".index(id[0]), id))


def messages(prefix: str = "mcp_django.") -> list[CheckMessage]:
    """All ids except those about the unused authorization server of the tests' site."""
    unused = {"mcp_django.W033", "mcp_django.W034"}
    found = [message for message in run_checks() if message.id not in unused]
    return [message for message in found if str(message.id).startswith(prefix)]


def ids() -> list[str]:
    return [str(message.id) for message in messages()]


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Let these distributions be installed, in these versions."""
    real = metadata.version

    def version(name: str) -> str:
        return versions.get(name.replace("-", "_")) or real(name)

    monkeypatch.setattr(metadata, "version", version)


@override_settings(MCP={"AUTH": "token"})
def test_a_sound_project_has_nothing_to_report() -> None:
    assert ids() == []


@override_settings(MCP={"AUTH": "token"})
def test_the_distribution_with_the_same_package_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, mcp_django="0.14.0")
    [message] = messages()
    assert message.id == "mcp_django.E001"
    assert "pip uninstall mcp-django" in str(message.hint)


@override_settings(MCP={"AUTH": "token"})
def test_asgiref_must_be_new_enough(subtests: pytest.Subtests) -> None:
    for version, expected in (("3.12.9", ["mcp_django.E005"]), ("3.13", []), ("4.0.1", [])):
        with subtests.test(version=version, expected=expected), pytest.MonkeyPatch.context() as monkeypatch:
            install(monkeypatch, asgiref=version)
            assert ids() == expected


@override_settings(MCP={"AUTH": "token", "LIMTIS": {}})
def test_an_unknown_key_is_reported_with_a_suggestion() -> None:
    [message] = messages()
    assert (message.id, message.hint) == ("mcp_django.E002", "Did you mean 'LIMITS'?")
    assert message.msg == 'MCP["LIMTIS"] is not an option.'


@override_settings(MCP={"AUTH": "token", "LIMITS": {"BODY": "big"}})
def test_a_wrong_value_is_reported_and_does_not_break_the_other_checks() -> None:
    [message] = messages()
    assert message.id == "mcp_django.E003"
    assert message.msg.startswith('MCP["LIMITS"]["BODY"] must be')


def test_auth_must_be_set_before_debug_is_off(subtests: pytest.Subtests) -> None:
    cases = (
        (None, False, ["mcp_django.W001"]),
        (None, True, []),
        ("none", False, ["mcp_django.W002"]),
        ("none", True, []),
        ("token", False, []),
        ("tests.interaction.verifiers.Tokens", False, []),
    )
    for auth, debug, expected in cases:
        with subtests.test(auth=auth, debug=debug, expected=expected):
            with override_settings(MCP={"AUTH": auth}, OAUTH2_PROVIDER={}, DEBUG=debug):
                found = ids()
            # The missing issuer of the authorization server has a message of its own.
            assert sorted(found) == sorted([*expected, "mcp_django.E030"])


def test_an_authorization_server_makes_auth_decided() -> None:
    with override_settings(MCP={"AUTH": None}, DEBUG=False):
        assert ids() == []


@override_settings(MCP={"AUTH": "token"})
def test_a_refused_declaration_is_reported_with_its_place() -> None:
    problem = registry.DeclarationProblem("the name 'a b' is none", "shop.mcp_tools.f", "Name it otherwise.")
    registry.REGISTRIES["default"].problems.append(problem)
    [message] = messages()
    assert (message.id, message.hint) == ("mcp_django.E004", "Name it otherwise.")
    assert message.msg == "shop.mcp_tools.f: the name 'a b' is none"


@pytest.mark.parametrize("extensions", [[], ["mcp_django.contrib.tasks.Tasks"]])
def test_a_task_without_an_extension_for_tasks_is_reported(settings: Any, extensions: list[str]) -> None:
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {"EXTENSIONS": extensions}}}

    @tool(task=True)
    async def survey() -> str:
        """Survey."""
        return ""

    assert ("mcp_django.W060" in ids()) is not bool(extensions)


@pytest.mark.parametrize("extension", ["tasks.Tasks", "apps.Apps"])
def test_an_app_without_an_extension_for_apps_is_reported(settings: Any, extension: str) -> None:
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {"EXTENSIONS": [f"mcp_django.contrib.{extension}"]}}}

    @tool(visibility=["app"])
    async def refresh() -> str:
        """Refresh."""
        return ""

    assert ("mcp_django.W061" in ids()) is (extension == "tasks.Tasks")


@override_settings(MCP={"AUTH": "token", "SCOPES": {"a": "This"}})
def test_an_undeclared_scope_of_a_tool_is_reported_with_the_place_of_the_tool() -> None:

    @tool(scopes=["a", "misspelt"])
    def one() -> None: ...

    [message] = messages()
    assert message.id == "mcp_django.W043"
    assert "test_checks" in message.msg
    assert "'misspelt'" in message.msg


def test_a_verifier_that_does_not_take_a_resource_is_reported() -> None:
    with override_settings(MCP={"AUTH": "tests.checks.test_checks.verify_for_a_server"}):
        [message] = messages()
    assert message.id == "mcp_django.E007"
    assert "resource" in message.msg


async def verify_for_a_server(token: str, *, server: str) -> None:
    """A verifier as it must not be."""


def test_tokens_of_the_authorization_server_require_its_app(monkeypatch: pytest.MonkeyPatch) -> None:
    there = authentication.apps.is_installed
    monkeypatch.setattr(
        authentication.apps, "is_installed", lambda name: name != "mcp_django.contrib.oauth" and there(name)
    )
    with override_settings(MCP={"AUTH": ["oauth", "token"]}):
        assert [message.id for message in authentication.check_embedded_server(None)] == ["mcp_django.E034"]
    with override_settings(MCP={"AUTH": "token"}):
        assert authentication.check_embedded_server(None) == []


@override_settings(MCP={"AUTH": "token", "SERVERS": {"default": {}, "staff": {}}})
def test_a_declaration_for_a_server_that_does_not_exist_is_reported() -> None:
    registry.get_registry("staff")
    registry.get_registry("stuff")
    [message] = messages()
    assert (message.id, message.hint) == ("mcp_django.E006", "Known servers: default, staff.")
    assert "'stuff'" in message.msg


@override_settings(MCP={"AUTH": "token"})
def test_an_unknown_server_is_logged_unless_the_check_is_silenced(caplog: pytest.LogCaptureFixture) -> None:
    registry.get_registry("stuff")
    for silenced, count in (["mcp_django.E006"], 0), ([], 1):
        with override_settings(SILENCED_SYSTEM_CHECKS=silenced):
            declarations.log_unserved_declarations()
        assert caplog.text.count("Declaration not served: A declaration names the server 'stuff'") == count


def test_an_invalid_dotted_path_is_reported(subtests: pytest.Subtests) -> None:
    for changes, where in (
        ({"AUTH": "shop.auth.Verifier"}, 'MCP["AUTH"]'),
        ({"SERVERS": {"default": {"MIDDLEWARE": ["tests.nothing.Audit"]}}}, 'MCP["SERVERS"]["default"]["MIDDLEWARE"]'),
        ({"SERVERS": {"default": {"PROVIDERS": ["tests.settings.Nothing"]}}}, '"PROVIDERS"'),
        ({"SERVERS": {"default": {"EXTENSIONS": ["tests.settings.Nothing"]}}}, '"EXTENSIONS"'),
        ({"SERVERS": {"default": {}, "hotel": {"LIFESPAN": "tests.settings.nothing"}}}, '"hotel"]["LIFESPAN"]'),
    ):
        with subtests.test(changes=changes, where=where):
            with override_settings(MCP={"AUTH": "token", **changes}):
                [message] = messages()
            assert message.id == "mcp_django.E007"
            assert where in message.msg
            assert "cannot be imported" in message.msg


def test_every_message_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, mcp_django="0.14.0", asgiref="3.8.1")
    with override_settings(MCP={"AUTH": None, "NONSENSE": 1}, OAUTH2_PROVIDER={}, DEBUG=False):
        found = messages()
    assert {message.id for message in found} == {f"mcp_django.{id}" for id in ("E001", "E002", "E005", "E030", "W001")}
    assert all(message.hint for message in found)


def test_every_id_is_listed_in_the_module_and_on_the_page() -> None:
    assert used_ids() == re.findall(r"^([EWI]\d+)  ", str(checks.__doc__), re.MULTILINE)

    names = ("checks.md", "warnings.md", "warnings-tools.md")
    pages = [(ROOT / "docs" / "reference" / name).read_text() for name in names]
    listed = [re.findall(r"^##+ `mcp_django\.([EWI]\d+)`", page, re.MULTILINE) for page in pages]
    assert sorted(used_ids()) == sorted(id for ids in listed for id in ids)
    assert all(id.startswith("W") for id in listed[1])


@override_settings(MCP={"AUTH": "token"})
def test_a_transaction_on_a_database_that_does_not_exist_is_reported_with_those_that_do() -> None:
    declared = registry.get_registry("default")
    register_tool(declared, lambda: "x", "sound", {"atomic": ["default"]})
    register_tool(declared, lambda: "x", "inherits", {})
    register_tool(declared, lambda: "x", "unsound", {"atomic": ["default", "elsewhere"]})
    register_completer(declared, "p", "x", "nowhere")(lambda value: [])
    found = messages()
    assert [message.id for message in found] == ["mcp_django.E004"] * 2
    assert "'elsewhere'" in found[0].msg
    assert "'nowhere'" in found[1].msg
    assert "Known databases: default." in str(found[0].hint)


class Shown(ModelToolset):
    """Users, by name."""

    fields = ["username"]
    ordering = ["username"]


def declared(toolset: type[ModelToolset], model: Any = User) -> list[CheckMessage]:
    """Return the messages about a toolset of the default server."""
    register(model)(toolset)
    return [message for message in run_checks(include_deployment_checks=True) if toolset.__name__ in message.msg]


@override_settings(MCP={"AUTH": "token"})
def test_a_sound_toolset_has_nothing_to_report() -> None:
    assert declared(Shown) == []


@override_settings(MCP={"AUTH": "token"})
def test_toolsets_that_show_secrets_are_not_served(subtests: pytest.Subtests) -> None:
    cases = (
        ({"fields": []}, "fields is empty"),
        ({"fields": "__all__"}, "requires exclude"),
        ({"fields": ["usrname"]}, "neither a field"),
        ({"fields": ["username", "password"]}, "looks like a secret"),
        ({"list_filter": ["email"]}, "list_filter names 'email'"),
        ({"search_fields": ["email"]}, "search_fields names 'email'"),
        ({"ordering": ["email"]}, "ordering names 'email'"),
        ({"tools": ["list", "purge"]}, "unknown tool 'purge'"),
    )
    for attributes, said in cases:
        with subtests.test(attributes=attributes, said=said), pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(registry, "REGISTRIES", {"default": registry.Registry("default", strict=False)})
            toolset = type("Broken", (Shown,), attributes)
            assert [(m.id, said in m.msg) for m in declared(toolset)] == [("mcp_django.E004", True)]
            assert not registry.get_registry("default").toolsets


@override_settings(MCP={"AUTH": "token"})
def test_results_without_a_schema_are_reported_at_the_check() -> None:
    class Strange(Shown):
        fields = ["username", "strange"]

        def strange(self, obj: Any) -> Callable[[], None]:
            return lambda: None

    assert [message.id for message in declared(Strange)] == ["mcp_django.E004"]


@override_settings(MCP={"AUTH": "token"})
def test_a_toolset_with_an_unknown_database_is_reported() -> None:
    class Elsewhere(Shown):
        using = "replica"
        list_select_related = ["groups"]

    found = declared(Elsewhere)
    assert [message.id for message in found] == ["mcp_django.E009"] * 2
    assert "'replica'" in found[0].msg
    assert "'groups'" in found[1].msg


@override_settings(MCP={"AUTH": "token"})
def test_a_path_to_a_model_that_is_not_served_is_reported() -> None:
    class Members(Shown):
        fields = ["username", "groups", "groups__name"]

    [message] = declared(Members)
    assert message.id == "mcp_django.W009"
    assert "'groups__name' is left out" in message.msg


def test_a_required_column_missing_from_new_rows_is_reported() -> None:
    class Boxes(ModelToolset):
        fields = ["label"]
        tools = ["create"]

    class SavedBoxes(Boxes):
        def save_model(self, ctx: Any, obj: Any, form: Any, change: bool) -> None:
            obj.weight = 1
            super().save_model(ctx, obj, form, change)

    class WeighedBoxes(Boxes):
        fields = ["label", "weight"]

    class ReadOnlyBoxes(WeighedBoxes):
        readonly_fields = ["weight"]

    for toolset, names in ((Boxes, ["'weight'"]), (ReadOnlyBoxes, ["'weight'"]), (SavedBoxes, []), (WeighedBoxes, [])):
        registry.REGISTRIES["default"] = registry.Registry("default", strict=False)
        register(Parcel)(toolset)
        found = messages("mcp_django.W014")
        assert [re.findall(r"column ('\w+')", message.msg)[0] for message in found] == names


def test_a_required_column_missing_from_inline_rows_is_reported() -> None:
    class LineInline(ModelInline):
        model = Line
        fields = ["quantity"]

    class Orders(ModelToolset):
        fields = ["reference"]
        tools = ["update"]
        inlines = [LineInline]

    register(Order)(Orders)
    [message] = messages("mcp_django.W014")
    assert "'product'" in message.msg
    assert "LineInline" in message.msg


@override_settings(MCP={"AUTH": "token"})
def test_permissions_that_cannot_be_granted_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(User._meta, "default_permissions", ("add", "change", "delete"))
    [message] = declared(Shown)
    assert (message.id, "'auth.view_user'" in message.msg) == ("mcp_django.W010", True)


@override_settings(MCP={"AUTH": "token"})
def test_an_order_without_an_index_is_a_deployment_message() -> None:
    class Late(Shown):
        fields = ["username", "last_name"]
        ordering = ["-last_name"]

    [message] = declared(Late)
    assert (message.id, "'last_name'" in message.msg) == ("mcp_django.I003", True)
    assert "mcp_django.I003" not in ids()


@override_settings(MCP={"AUTH": "token"})
def test_a_permission_that_no_app_defines_is_reported_with_a_similar_one() -> None:
    found = registry.get_registry("default")
    register_tool(found, lambda: "x", "first", {"permission": "auth.veiw_user"})
    register_tool(found, lambda: "x", "second", {"permission": ["auth.veiw_user", "auth.view_user"]})
    [message] = messages()
    assert message.id == "mcp_django.W011"
    assert "'auth.veiw_user'" in message.msg
    assert "and 1 more" in message.msg
    assert "Did you mean 'auth.view_user'?" in str(message.hint)


def test_other_backends_may_define_permissions(subtests: pytest.Subtests) -> None:
    found = registry.get_registry("default")
    register_tool(found, lambda: "x", "own", {"permission": "zoo.feed_lions"})
    register_tool(found, lambda: "x", "misspelt", {"permission": "auth.veiw_user"})
    for backends, reported in (
        (["django.contrib.auth.backends.ModelBackend"], ["'auth.veiw_user'", "'zoo.feed_lions'"]),
        (["django.contrib.auth.backends.ModelBackend", "zoo.Backend"], ["'auth.veiw_user'"]),
    ):
        with (
            subtests.test(backends=backends, reported=reported),
            override_settings(AUTHENTICATION_BACKENDS=backends, MCP={"AUTH": "token"}),
        ):
            texts = [message.msg for message in permissions.check_permissions()]
            assert len(texts) == len(reported)
            assert all(name in text for name, text in zip(reported, texts, strict=True))


@override_settings(MCP={"AUTH": "token"})
def test_a_misspelt_attribute_of_a_toolset_is_reported() -> None:
    class Misspelt(Shown):
        list_filters = ["username"]
        colours = ("red",)

        def has_veiw_permission(self, ctx: Any) -> bool:
            return False

    found = declared(Misspelt)
    assert [message.id for message in found] == ["mcp_django.W012"] * 2
    assert ["'list_filters'" in found[0].msg, "'list_filter'" in str(found[0].hint)] == [True, True]
    assert ["'has_veiw_permission'" in found[1].msg, "'has_view_permission'" in str(found[1].hint)] == [True, True]


@override_settings(MCP={"AUTH": "token"})
def test_the_permission_hook_of_an_action_is_not_a_misspelling() -> None:
    class Reviewed(Shown):
        @action(permissions=["review"])
        def review(self, ctx: Any, obj: Any) -> str:
            return "ok"

        def has_review_permission(self, ctx: Any, obj: Any = None) -> bool:
            return True

    assert declared(Reviewed) == []


@override_settings(MCP={"AUTH": "token"})
def test_a_tool_that_a_host_refuses_is_reported_with_host_and_remedy() -> None:
    @tool
    def measure(größe: int) -> str:
        return str(größe)

    @tool(name="measure.all")
    def measure_all(sizes: list[int]) -> str:
        return str(sizes)

    found = messages("mcp_django.W066")
    assert len(found) == 2
    assert "'measure': the argument 'größe' has a name" in found[0].msg
    assert "(refused by Claude)" in found[0].msg
    assert "alias" in str(found[0].hint)
    assert "'measure.all' has a name" in found[1].msg
    assert messages() == found


@override_settings(MCP={"AUTH": "token"})
def test_a_tool_that_cannot_be_listed_hides_no_host_rule() -> None:
    class Broken:
        def __str__(self) -> str:
            raise LookupError("no such text")

    @tool(title=Broken())  # type: ignore[arg-type]
    def broken() -> str:
        return ""

    @tool(name="a.b")
    def dotted() -> str:
        return ""

    assert [message.id for message in messages() if message.id == "mcp_django.W066"] == ["mcp_django.W066"]


@override_settings(MCP={"AUTH": "token", "SERVERS": {"default": {}, "staff": {"ORM_STYLE": "generic"}}})
def test_a_large_list_of_tools_of_single_models_is_a_hint_that_fails_no_build() -> None:
    with isolate_apps("tests.shop"):
        for number in range(15):
            model: Any = type(
                f"Large{number}",
                (models.Model,),
                {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "shop"})},
            )
            for alias in ("default", "staff"):
                kind = type(f"Large{number}Rows", (ModelToolset,), {"fields": ["id"]})
                register(model, server=alias)(kind)
            found = messages()
            assert bool(found) is (number == 14)
    [message] = found
    assert (message.id, message.is_serious()) == ("mcp_django.I004", False)
    text = (
        r'The server "default" lists 60 tools, [\d,]+ bytes, about [\d,]+ tokens; 60 of the tools are of single models.'
    )
    assert re.fullmatch(text, message.msg)
    assert 'MCP["SERVERS"]["default"]["ORM_STYLE"] = "generic"' in str(message.hint)


@override_settings(MCP={"AUTH": "token"})
def test_a_list_entry_that_fails_is_one_error_of_all_checks() -> None:
    class Broken:
        def __str__(self) -> str:
            raise LookupError("no catalogue")

    register_tool(registry.get_registry("default"), lambda: "x", "broken", {"title": Broken()})  # type: ignore[typeddict-item]
    [message] = messages()
    assert message.id == "mcp_django.E004"
    assert "LookupError: no catalogue" in message.msg
