"""Copied texts do the same as the page: in a shell, as a program, and as a command."""

import io
import json
import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django.live_server_helper import LiveServer

from mcp_django.contrib.playground.copies import build_copies
from mcp_django.management.client_config.catalogue import CLIENT_PROGRAMS
from mcp_django.models import PersonalAccessToken
from mcp_django.transports.inprocess.profile import InProcessProfile
from tests.contrib.playground.test_playground import read_text

COMMAND_SECONDS = 60


def run_shell(command: str, token: str) -> str:
    """Return the output of a command line with a token in its variable."""
    environment = os.environ | {"TOKEN": token, "NO_PROXY": "*"}
    done = subprocess.run(
        ["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True
    )
    return done.stdout


@pytest.mark.integration
@pytest.mark.django_db(transaction=True)
def test_the_copied_texts_give_the_result_of_the_page(live_server: LiveServer, settings: Any) -> None:
    settings.MCP = {"AUTH": ["token"], "PLAYGROUND": {"ENABLED": True}, "RECORD": {"RUNNING": False}}
    boss = User.objects.create_superuser("boss")
    token = PersonalAccessToken.issue(user=boss, name="copies", expires=None)[1]
    browser = Client()
    browser.force_login(boss)
    url = reverse("admin:mcp_playground_playground_changelist", query={"name": "add", "server": "default"})
    data = {"act": "send", "confirmed": "on", "argument-a": "3", "argument-b": "4"}
    page = browser.post(url, data, headers={"host": live_server.url.removeprefix("http://")}).content.decode()
    result = json.loads(read_text(page, "answer"))["result"]
    assert result["structuredContent"] == {"result": 7}
    assert token not in page

    curl = read_text(page, "copy-curl")
    assert live_server.url in curl
    assert json.loads(run_shell(f"{curl} --silent --fail", token))["result"] == result
    program = f"{shlex.quote(sys.executable)} -c {shlex.quote(read_text(page, 'copy-python'))}"
    assert repr(result["structuredContent"]) in run_shell(program, token)
    output = io.StringIO()
    call_command(*shlex.split(read_text(page, "copy-command"))[1:], stdout=output)
    shown = json.loads(output.getvalue())
    assert shown == {key: result[key] for key in shown}
    assert shown["structuredContent"] == {"result": 7}


def test_clients_that_read_a_variable_have_a_configuration_without_a_secret(settings: Any) -> None:
    settings.MCP = {"AUTH": "none", "SERVERS": {"default": {"NAME": "Café & sons"}}}
    request = InProcessProfile().build_request(1, "resources/read", {"uri": "a:b"})
    copies = build_copies("https://a.example/mcp", "default", "ada", request)
    found = {copy.name: copy.text for copy in copies if copy.is_configuration}
    assert set(found) == {"claude", "claude-code", "vscode", "cursor", "windsurf", "gemini", "codex"}
    entry = json.loads(found["claude-code"])["mcpServers"]["Caf-sons"]
    assert entry == {
        "type": "http",
        "url": "https://a.example/mcp",
        "headers": {"Authorization": "Bearer ${TOKEN}"},
    }
    words = shlex.split(found["claude"])
    assert words[:4] == ["claude", "mcp", "add-json", "Caf-sons"]
    assert json.loads(words[4]) == entry
    assert 'bearer_token_env_var = "TOKEN"' in found["codex"]
    assert set(found) - {"claude"} <= set(CLIENT_PROGRAMS)
