"""The recipes about deployment: each configuration is read by the parser of its program, and each setting is valid."""

import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import crossplane
import jsonschema
import pytest
import yaml
from django.core.management import call_command

from mcp_django import conf
from mcp_django.conf.options import Limits
from tests.recipes.pages import RECIPES, block_with, settings_with
from tests.repository.pages import ROOT


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    text = (RECIPES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def directives(config: list[dict[str, Any]], name: str) -> list[list[str]]:
    """Return the arguments of each directive with the name."""
    found = [entry["args"] for entry in config if entry["directive"] == name]
    return found + [args for entry in config for args in directives(entry.get("block", []), name)]


def test_nginx_knows_each_directive_and_waits_longer_than_the_keep_alive(tmp_path: Path) -> None:
    [config] = blocks("nginx", "nginx")
    [file] = parse_nginx(tmp_path, f"events {{}}\nhttp {{\n{config}}}\n")["config"]
    # The parser takes the two entries of `map` for directives.
    assert [error["line"] for error in file["errors"]] == [4, 5]
    assert directives(file["parsed"], "proxy_buffering") == [["off"]]
    waits = [int(args[0].removesuffix("s")) for args in directives(file["parsed"], "proxy_read_timeout")]
    assert min(waits) > max(Limits().keep_alive, Limits().ping)
    [[size]] = directives(file["parsed"], "client_max_body_size")
    assert int(size.removesuffix("m")) * 1024 * 1024 == Limits().body
    [location] = [e for e in directives_with_blocks(file["parsed"], "location") if e["args"] == ["/mcp"]]
    assert not [entry for entry in location["block"] if entry["directive"] == "proxy_set_header"]


def directives_with_blocks(config: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return each directive with the name, and its block."""
    found = [entry for entry in config if entry["directive"] == name]
    return found + [inner for entry in config for inner in directives_with_blocks(entry.get("block", []), name)]


def parse_nginx(directory: Path, text: str) -> dict[str, Any]:
    """Parse a configuration, and check names, places and arguments of its directives."""
    path = directory / "nginx.conf"
    path.write_text(text, encoding="utf-8")
    parsed: dict[str, Any] = crossplane.parse(str(path), strict=True)
    return parsed


def test_a_wrong_nginx_directive_is_noticed(tmp_path: Path) -> None:
    parsed = parse_nginx(tmp_path, "events {}\nhttp { server { proxy_bufering off; } }\n")
    assert "proxy_bufering" in parsed["errors"][0]["error"]


def test_traefik_has_no_limit_for_streams_and_no_buffering() -> None:
    static, dynamic = map(yaml.safe_load, blocks("traefik", "yaml"))
    assert set(static) == {"entryPoints", "certificatesResolvers", "providers"}
    assert static["entryPoints"]["websecure"]["transport"]["respondingTimeouts"]["writeTimeout"] == "0s"
    router = dynamic["http"]["routers"]["shop"]
    assert router["service"] in dynamic["http"]["services"]
    assert set(router["entryPoints"]) <= set(static["entryPoints"])
    assert router["tls"]["certResolver"] in static["certificatesResolvers"]
    assert "middlewares" not in dynamic["http"]


def test_the_cdn_caches_nothing_and_waits_longer_than_the_keep_alive() -> None:
    [parsed] = map(yaml.safe_load, blocks("cdn", "yaml"))
    [behavior] = parsed["CacheBehaviors"]
    [origin] = parsed["Origins"]
    assert behavior["TargetOriginId"] == origin["Id"]
    assert {"DELETE", "OPTIONS", "POST", "GET"} <= set(behavior["AllowedMethods"])
    assert origin["CustomOriginConfig"]["OriginReadTimeout"] > Limits().keep_alive


def test_the_compose_file_fits_its_schema() -> None:
    [parsed] = map(yaml.safe_load, blocks("docker-compose", "yaml"))
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    validator = jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    assert [error.message for error in validator.iter_errors(parsed)] == []
    assert list(validator.iter_errors({"services": {"web": {"imagee": "x"}}}))
    assert parsed["services"]["web"]["deploy"]["replicas"] == 2
    for service in parsed["services"].values():
        assert set(service.get("depends_on", ())) <= set(parsed["services"])
    grace = int(parsed["services"]["web"]["stop_grace_period"].removesuffix("s"))
    assert grace > Limits().shutdown_grace + 5


def test_the_settings_of_compose_read_the_variables_of_its_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    [parsed] = map(yaml.safe_load, blocks("docker-compose", "yaml"))
    environment = parsed["services"]["web"]["environment"]
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    found: dict[str, Any] = {}
    exec(block_with("docker-compose", "DATABASES"), found)
    assert found["DATABASES"]["default"]["HOST"] in parsed["services"]
    assert found["REDIS_URL"].split("/")[2].split(":")[0] in parsed["services"]
    assert found["CHANNEL_LAYERS"]["default"]["CONFIG"]["hosts"] == [found["CACHES"]["default"]["LOCATION"]]


@pytest.mark.parametrize(("page", "proxies"), [("nginx", 1), ("traefik", 1), ("cdn", 2), ("gunicorn-wsgi", None)])
def test_settings_behind_a_proxy_are_valid(page: str, proxies: int | None, settings: Any) -> None:
    settings.MCP = settings_with(page, "ORIGIN")
    assert conf.get_problems() == []
    if proxies is not None:
        assert conf.get_settings().rates.num_proxies == proxies


def test_gunicorn_accepts_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "gunicorn.conf.py").write_text(block_with("gunicorn-wsgi", "gthread"), encoding="utf-8")
    (tmp_path / "shop_wsgi.py").write_text("def application(environ, start_response): ...\n", encoding="utf-8")
    command = [sys.executable, "-m", "gunicorn", "--check-config", "-c", "gunicorn.conf.py", "shop_wsgi:application"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    (tmp_path / "gunicorn.conf.py").write_text("threads = 'many'", encoding="utf-8")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode


def test_commands_for_clients_print_an_entry(capsys: pytest.CaptureFixture[str], settings: Any) -> None:
    settings.MCP = {"AUTH": "token", "ORIGIN": "https://shop.example.com"}
    settings.BASE_DIR = ROOT
    text = (RECIPES / "connect-ai-clients.md").read_text(encoding="utf-8")
    commands = re.findall(r"^python manage.py (mcp_install .+)$", text, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        arguments = [part for part in command.split() if part != "--write"]
        call_command(*arguments)
        expected = '"ada"' if "--user" in arguments else "https://shop.example.com/mcp"
        assert expected in capsys.readouterr().out
