import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_type_hints

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import conf
from mcp_django.types import Icon

SECTIONS = [conf.Limits, conf.Rates, conf.ServerSettings, conf.Settings]


def problems_of(setting: Any) -> list[conf.SettingsProblem]:
    with override_settings(MCP=setting):
        return conf.get_problems()


def settings_of(setting: Any) -> conf.Settings:
    with override_settings(MCP=setting):
        return conf.get_settings()


def test_an_empty_setting_is_closed_and_complete() -> None:
    settings = settings_of({})
    assert settings.auth == ()
    assert list(settings.servers) == ["default"]
    assert (settings.servers["default"].path, settings.servers["default"].eras) == ("mcp", ("handshake", "stateless"))
    assert (settings.limits.body, settings.limits.sessions_per_owner) == (4 * 1024 * 1024, 20)
    assert problems_of({}) == []


def test_a_project_without_the_setting_gets_the_defaults(settings: Any) -> None:
    expected = settings_of({})
    del settings.MCP
    assert conf.get_settings() == expected


def test_options_of_every_section_are_read() -> None:
    settings = settings_of(
        {
            "AUTH": ["token", "shop.auth.Verifier"],
            "LOCAL_USER": "ada",
            "LIMITS": {"IN_FLIGHT": 7, "SESSION_IDLE": 90},
            "SERVERS": {
                "default": {"NAME": "shop", "TIMEOUT": 2, "PAGE_SIZE": None, "CAPABILITIES": {"experimental": {}}}
            },
            "ALLOWED_ORIGINS": ["https://shop.example"],
            "AUTODISCOVER_MODULES": ["mcp_tools", "assistants.tools"],
            "EXPOSE_INTERNAL_ERRORS": True,
        }
    )
    assert settings.auth == ("token", "shop.auth.Verifier")
    assert settings.local_user == "ada"
    assert (settings.limits.in_flight, settings.limits.session_idle) == (7, 90.0)
    server = settings.servers["default"]
    assert (server.name, server.timeout, server.page_size) == ("shop", 2.0, None)
    assert server.capabilities == {"experimental": {}}
    assert settings.allowed_origins == ("https://shop.example",)
    assert settings.autodiscover_modules == ("mcp_tools", "assistants.tools")
    assert settings.expose_internal_errors is True


def test_the_setting_is_kept_until_it_changes() -> None:
    with override_settings(MCP={"LOCAL_USER": "ada"}):
        first = conf.get_settings()
        assert conf.get_settings() is first
        with override_settings(MCP={"LOCAL_USER": "bob"}):
            assert conf.get_settings().local_user == "bob"
        assert conf.get_settings().local_user == "ada"


def test_an_unknown_key_is_a_problem_with_a_suggestion_but_does_not_stop_the_project(subtests: pytest.Subtests) -> None:
    cases = (
        ({"ATUH": "token"}, 'MCP["ATUH"]', "AUTH"),
        ({"auth": "token"}, 'MCP["auth"]', "AUTH"),
        ({"LIMITS": {"INFLIGHT": 3}}, 'MCP["LIMITS"]["INFLIGHT"]', "IN_FLIGHT"),
        ({"SERVERS": {"default": {"INSTRUCTION": ""}}}, 'MCP["SERVERS"]["default"]["INSTRUCTION"]', "INSTRUCTIONS"),
        ({"ZZZ": 1}, 'MCP["ZZZ"]', None),
        ({7: 1}, "MCP[7]", None),
    )
    for setting, path, suggestion in cases:
        with subtests.test(setting=setting, path=path, suggestion=suggestion):
            [problem] = problems_of(setting)
            assert (problem.path, problem.suggestion, problem.unknown) == (path, suggestion, True)
            assert settings_of(setting) == settings_of({})


def test_an_invalid_value_stops_the_project_with_its_name(subtests: pytest.Subtests) -> None:
    cases = (
        ("token", "MCP"),
        ({"LIMITS": [1]}, 'MCP["LIMITS"]'),
        ({"LIMITS": {"BODY": "4 MiB"}}, 'MCP["LIMITS"]["BODY"]'),
        ({"LIMITS": {"BODY": True}}, 'MCP["LIMITS"]["BODY"]'),
        ({"LIMITS": {"BODY": 0}}, 'MCP["LIMITS"]["BODY"]'),
        ({"LIMITS": {"SESSIONS_PER_OWNER": 40_000}}, 'MCP["LIMITS"]["SESSIONS_PER_OWNER"]'),
        ({"LIMITS": {"SESSION_IDLE": float("inf")}}, 'MCP["LIMITS"]["SESSION_IDLE"]'),
        ({"LIMITS": {"KEEP_ALIVE": 0}}, 'MCP["LIMITS"]["KEEP_ALIVE"]'),
        ({"TOKEN_CACHE_SECONDS": -1}, 'MCP["TOKEN_CACHE_SECONDS"]'),
        ({"EXPOSE_INTERNAL_ERRORS": 1}, 'MCP["EXPOSE_INTERNAL_ERRORS"]'),
        ({"LOCAL_USER": ""}, 'MCP["LOCAL_USER"]'),
        ({"AUTODISCOVER_MODULES": "mcp_tools"}, 'MCP["AUTODISCOVER_MODULES"]'),
        ({"AUTODISCOVER_MODULES": ["mcp-tools"]}, 'MCP["AUTODISCOVER_MODULES"]'),
        ({"ALLOWED_ORIGINS": ["https://shop.example/path"]}, 'MCP["ALLOWED_ORIGINS"]'),
        ({"ALLOWED_ORIGINS": ["shop.example"]}, 'MCP["ALLOWED_ORIGINS"]'),
        ({"SERVERS": {"default": {"ERAS": []}}}, 'MCP["SERVERS"]["default"]["ERAS"]'),
        ({"SERVERS": {"default": {"ERAS": ["modern"]}}}, 'MCP["SERVERS"]["default"]["ERAS"]'),
        ({"SERVERS": {"default": {"LOG_LEVEL": "warn"}}}, 'MCP["SERVERS"]["default"]["LOG_LEVEL"]'),
        ({"SERVERS": {"default": {"PATH": "/mcp"}}}, 'MCP["SERVERS"]["default"]["PATH"]'),
        ({"SERVERS": {"default": {"MIDDLEWARE": ["Audit"]}}}, 'MCP["SERVERS"]["default"]["MIDDLEWARE"]'),
        ({"SERVERS": {"default": {"CAPABILITIES": []}}}, 'MCP["SERVERS"]["default"]["CAPABILITIES"]'),
        ({"SERVERS": {"default": {"ICONS": "https://a.example/i.png"}}}, 'MCP["SERVERS"]["default"]["ICONS"]'),
        ({"SERVERS": {"default": {"ICONS": ["/static/i.png"]}}}, 'MCP["SERVERS"]["default"]["ICONS"]'),
        ({"SERVERS": {"default": {"ICONS": [7]}}}, 'MCP["SERVERS"]["default"]["ICONS"]'),
        ({"SERVERS": {"admin": {}}}, 'MCP["SERVERS"]'),
        ({"SERVERS": {"default": {}, "Über": {}}}, 'MCP["SERVERS"]'),
    )
    for setting, path in cases:
        with subtests.test(setting=setting, path=path):
            [problem] = problems_of(setting)
            assert (problem.path, problem.unknown) == (path, False)
            with pytest.raises(ImproperlyConfigured) as stopped:
                settings_of(setting)
            assert str(stopped.value) == f"{path} {problem.message}"


def test_every_wrong_value_is_named_at_once() -> None:
    with pytest.raises(ImproperlyConfigured) as stopped:
        settings_of({"LOCAL_USER": 3, "LIMITS": {"BODY": -1, "BODI": 1}})
    assert len(str(stopped.value).splitlines()) == 2


def test_auth_is_read_as_the_verifiers_in_their_order(subtests: pytest.Subtests) -> None:
    for written, read in (
        (None, ()),
        ("none", ("none",)),
        ("token", ("token",)),
        ("shop.auth.verify", ("shop.auth.verify",)),
        (("token", "token", "shop.auth.verify"), ("token", "shop.auth.verify")),
    ):
        with subtests.test(written=written, read=read):
            assert settings_of({"AUTH": written}).auth == read


def test_unknown_names_in_auth_are_refused_with_a_suggestion(subtests: pytest.Subtests) -> None:
    for written in ("tokens", "", [], ["none", "token"], 3, [None], {"token": 1}, "shop..auth"):
        with subtests.test(written=written):
            [problem] = problems_of({"AUTH": written})
            assert problem.path == 'MCP["AUTH"]'

    [problem] = problems_of({"AUTH": ["tokens"]})
    assert problem.suggestion == "token"


def test_another_server_has_the_name_and_the_path_of_its_alias() -> None:
    servers = settings_of({"SERVERS": {"default": {}, "staff": {}, "ops": {"PATH": "ops"}}}).servers
    assert (servers["staff"].name, servers["staff"].path, servers["ops"].path) == ("staff", "mcp/staff", "ops")


def test_two_servers_cannot_share_a_path() -> None:
    [problem] = problems_of({"SERVERS": {"default": {}, "staff": {"PATH": "mcp"}}})
    assert problem.path == 'MCP["SERVERS"]["staff"]["PATH"]'
    assert "'default'" in problem.message


def test_modules_to_discover_are_known_although_other_values_are_wrong() -> None:
    with override_settings(MCP={"LIMITS": 3, "AUTODISCOVER_MODULES": ["tools"]}):
        assert conf.autodiscover_modules() == ("tools",)


@override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["old", "older"])
def test_the_sealing_key_is_the_first_one() -> None:
    assert conf.secret_keys() == ["new", "old", "older"]


def test_allowed_hosts_match_those_of_django(subtests: pytest.Subtests) -> None:
    for debug, written, read in (
        (True, [], [".localhost", "127.0.0.1", "[::1]"]),
        (True, ["a.example"], ["a.example"]),
        (False, [], []),
    ):
        with (
            subtests.test(debug=debug, written=written, read=read),
            override_settings(DEBUG=debug, ALLOWED_HOSTS=written),
        ):
            assert conf.allowed_hosts() == read


def test_every_option_is_described(subtests: pytest.Subtests) -> None:
    for section in SECTIONS:
        with subtests.test(section=section):
            tree = ast.parse(inspect.getsource(section)).body[0]
            assert isinstance(tree, ast.ClassDef)
            bare = [
                ast.unparse(node.target)
                for node, following in zip(tree.body, [*tree.body[1:], None], strict=True)
                if isinstance(node, ast.AnnAssign)
                and not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant))
            ]
            assert bare == []


def test_every_default_can_also_be_written(subtests: pytest.Subtests) -> None:
    for section in SECTIONS:
        with subtests.test(section=section):
            defaults = section()
            for name, hint in get_type_hints(section, include_extras=True).items():
                if hasattr(hint, "__metadata__") and name != "auth":
                    value = getattr(defaults, name)
                    assert hint.__metadata__[0](value) == value


def test_settings_are_immutable_values(subtests: pytest.Subtests) -> None:
    for section in SECTIONS:
        with subtests.test(section=section), pytest.raises(dataclasses.FrozenInstanceError):
            setattr(section(), dataclasses.fields(section)[0].name, None)


def even(raw: Any) -> int:
    if not isinstance(raw, int) or raw % 2:
        raise ValueError("must be even")
    return raw


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShopSettings:
    most: Annotated[int, even] = 10
    name: str = "shop"
    rate: float | None = None
    tags: tuple[str, ...] = ()
    is_open: bool = True
    floors: int = 1


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ShopSettings]]:
    monkeypatch.setattr(conf, "_SECTIONS", {})
    yield conf.register_settings("SHOP", ShopSettings)
    conf.clear_cache()


class TestSectionsOfApps:
    def test_a_section_is_read_like_the_rest_of_the_setting(
        self, shop: Callable[[], ShopSettings], settings: Any
    ) -> None:
        assert shop() == ShopSettings()
        settings.MCP = {"SHOP": {"MOST": 4, "NAME": "x", "RATE": 1, "TAGS": ["a"], "IS_OPEN": False, "FLOORS": 2}}
        assert shop() == ShopSettings(most=4, name="x", rate=1.0, tags=("a",), is_open=False, floors=2)
        settings.MCP = {}
        assert shop() == ShopSettings()

    def test_a_wrong_value_stops_the_project_with_its_name(
        self, shop: Callable[[], ShopSettings], settings: Any, subtests: pytest.Subtests
    ) -> None:
        cases = (
            ("MOST", 3, "must be even, not 3"),
            ("NAME", "", "must be a string that is not empty, not ''"),
            ("RATE", "1", "must be a number, not '1'"),
            ("TAGS", "a", "must be a list, not 'a'"),
            ("IS_OPEN", 1, "must be True or False, not 1"),
            ("FLOORS", 1.5, "must be a whole number, not 1.5"),
        )
        for key, value, complaint in cases:
            with subtests.test(key=key, value=value, complaint=complaint):
                settings.MCP = {"SHOP": {key: value}}
                with pytest.raises(ImproperlyConfigured) as caught:
                    conf.get_settings()
                assert str(caught.value) == f'MCP["SHOP"]["{key}"] {complaint}'
                assert shop() == ShopSettings()

    def test_an_unknown_key_of_a_section_is_a_problem_with_a_suggestion(self, shop: Any) -> None:
        [problem] = problems_of({"SHOP": {"MOTS": 4}})
        assert (problem.path, problem.suggestion, problem.unknown) == ('MCP["SHOP"]["MOTS"]', "MOST", True)

    def test_without_its_app_a_section_is_no_option(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(conf, "_SECTIONS", {})
        [problem] = problems_of({"SHOP": {"MOST": 4}})
        assert (problem.path, problem.unknown) == ('MCP["SHOP"]', True)

    def test_an_existing_or_invalid_key_is_refused(self, shop: Any, subtests: pytest.Subtests) -> None:
        def check(key: str) -> None:
            @dataclasses.dataclass
            class Other:
                most: int = 1

            with pytest.raises(ValueError, match=r"key|in use"):
                conf.register_settings(key, Other)

        for key in ("AUTH", "SERVERS", "SHOP", "shop", ""):
            with subtests.test(key=key):
                check(key)

    def test_an_option_that_nothing_reads_is_refused(self, shop: Any) -> None:
        @dataclasses.dataclass
        class Other:
            when: dict[str, int] = dataclasses.field(default_factory=dict)

        with pytest.raises(TypeError, match=r"Other\.when has the unsupported type"):
            conf.register_settings("OTHER", Other)
        with pytest.raises(TypeError, match="is not a dataclass"):
            conf.register_settings("OTHER", int)


def test_icons_are_urls_or_dicts() -> None:
    one = {"src": "https://a.example/i.png", "sizes": ["48x48"]}
    found = settings_of(
        {
            "SERVERS": {
                "default": {"ICONS": ["https://a.example/j.png", one, Icon("https://a.example/k.png", sizes=["any"])]}
            }
        }
    )
    wires = [icon.to_wire() for icon in found.servers["default"].icons]
    assert wires == [{"src": "https://a.example/j.png"}, one, {"src": "https://a.example/k.png", "sizes": ["any"]}]
