"""`mcp_install`: configurations of clients, and changes of their files."""

import json
import os
import stat
import sys
import tomllib
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.management.client_config import jsonc, toml_text
from mcp_django.management.client_config.catalogue import CLIENT_PROGRAMS

FILES = {
    "claude": ".config/Claude/claude_desktop_config.json",
    "claude-code": "site/.mcp.json",
    "vscode": "site/.vscode/mcp.json",
    "cursor": "site/.cursor/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "gemini": "site/.gemini/settings.json",
    "codex": ".codex/config.toml",
    "zed": ".config/zed/settings.json",
}
SECTIONS = {"vscode": "servers", "codex": "mcp_servers", "zed": "context_servers"}
WRITTEN = sorted(FILES)
PLACEHOLDERS = {"claude-code": "${KEY}", "vscode": "${env:KEY}", "cursor": "${env:KEY}", "gemini": "${KEY}"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everybody's files, on Linux, and a project in `site` whose manage.py was called."""
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "APPDATA", "MCP_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    manage = tmp_path / "site" / "manage.py"
    manage.parent.mkdir()
    manage.write_text('os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")')
    monkeypatch.setattr(sys, "argv", [str(manage), "mcp_install"])
    return tmp_path


@dataclass
class Run:
    """Output of a command beside its result."""

    stderr: str = ""


LAST_RUN = Run()


def install(*arguments: str) -> str:
    """Run the command. Return its stdout."""
    out, err = StringIO(), StringIO()
    call_command("mcp_install", *arguments, stdout=out, stderr=err)
    LAST_RUN.stderr = err.getvalue()
    return out.getvalue()


def loaded(client: str, text: str) -> Any:
    return tomllib.loads(text) if client == "codex" else json.loads(text)


def entry(client: str, *arguments: str, name: str = "django") -> Any:
    """Return the entry of the server."""
    data = loaded(client, install(client, *arguments))
    assert list(data) == [SECTIONS.get(client, "mcpServers")]
    return data[SECTIONS.get(client, "mcpServers")][name]


@pytest.mark.parametrize("mode", [(), ("--write",)])
@pytest.mark.parametrize(
    ("arguments", "rights"),
    [
        ((), "The client gets all rights: every tool, without permission checks. Use --user NAME to limit it."),
        (("--user", "ada"), "The client acts as the user ada, with that user's permissions."),
        (
            ("--user", "ada", "--scope", "read", "--scope", "plan"),
            "The client acts as the user ada, with that user's permissions, within the scopes read, plan.",
        ),
        (("--token-env", "KEY"), "The client acts as the user of its token, within the scopes of the token."),
        (
            ("--transport", "http"),
            "The client gets the rights of the user who authorizes it, or of the token that it sends.",
        ),
    ],
)
def test_the_output_names_the_rights_of_the_client(
    arguments: tuple[str, ...], rights: str, mode: tuple[str, ...]
) -> None:
    install("vscode", *arguments, *mode)
    assert LAST_RUN.stderr.splitlines()[-1] == rights


@override_settings(MCP={"LOCAL_USER": "ada"})
def test_the_local_user_is_named_with_the_rights() -> None:
    install("vscode")
    assert "gets all rights: every tool, without permission checks. It acts as the user ada." in LAST_RUN.stderr


def test_the_configuration_of_every_client_starts_the_server(home: Path, subtests: pytest.Subtests) -> None:
    for client in CLIENT_PROGRAMS:
        with subtests.test(client=client):
            found = entry(client)
            assert found.pop("type", "stdio") == "stdio"
            assert found.pop("cwd", str(home / "site")) == str(home / "site")
            assert found == {"command": sys.executable, "args": [str(home / "site" / "manage.py"), "mcp_stdio"]}
            assert Path(found["command"]).is_absolute()
            assert not [path for path in home.rglob("*") if path.is_file() and path.name != "manage.py"]


def test_the_configuration_of_every_client_has_the_url_in_its_format(subtests: pytest.Subtests) -> None:
    cases = (
        ("claude-code", {"type": "http", "url": "https://a.example/mcp"}),
        ("vscode", {"type": "http", "url": "https://a.example/mcp"}),
        ("cursor", {"url": "https://a.example/mcp"}),
        ("windsurf", {"serverUrl": "https://a.example/mcp"}),
        ("gemini", {"httpUrl": "https://a.example/mcp"}),
        ("codex", {"url": "https://a.example/mcp"}),
        ("zed", {"url": "https://a.example/mcp"}),
        ("generic", {"url": "https://a.example/mcp"}),
    )
    for client, expected in cases:
        with subtests.test(client=client, expected=expected):
            assert entry(client, "--transport", "http", "--url", "https://a.example/mcp") == expected


def test_the_url_is_that_of_runserver_unless_it_is_named() -> None:
    assert entry("cursor", "--transport", "http") == {"url": "http://127.0.0.1:8000/mcp"}


def test_tokens_are_named_and_not_written(subtests: pytest.Subtests) -> None:
    for client, placeholder in PLACEHOLDERS.items():
        with subtests.test(client=client, placeholder=placeholder), pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setenv("KEY", "mcp_secret")
            assert entry(client, "--token-env", "KEY")["env"] == {"MCP_TOKEN": placeholder}
            headers = entry(client, "--token-env", "KEY", "--transport", "http")["headers"]
            assert headers == {"Authorization": f"Bearer {placeholder}"}


def test_the_configuration_of_codex_names_variables() -> None:
    assert entry("codex", "--token-env", "KEY", "--transport", "http")["bearer_token_env_var"] == "KEY"
    assert entry("codex", "--token-env", "MCP_TOKEN")["env_vars"] == ["MCP_TOKEN"]


def test_an_option_writes_the_token(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("MCP_TOKEN", "mcp_secret")
    assert "mcp_secret" not in json.dumps(entry("zed"))
    assert entry("zed", "--with-token")["env"] == {"MCP_TOKEN": "mcp_secret"}
    install("zed", "--with-token", "--write")
    assert stat.S_IMODE((home / FILES["zed"]).stat().st_mode) == 0o600
    assert "can read" not in LAST_RUN.stderr


def test_a_token_in_a_readable_file_causes_a_warning(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("MCP_TOKEN", "mcp_secret")
    path = home / FILES["zed"]
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    path.chmod(0o644)
    install("zed", "--write")
    assert "can read" not in LAST_RUN.stderr
    install("zed", "--with-token", "--write")
    assert "Other users can read" in LAST_RUN.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_contradicting_arguments_are_refused(subtests: pytest.Subtests) -> None:
    cases = (
        (["claude", "--transport", "http"], "add http://127.0.0.1:8000/mcp as a connector"),
        (["zed", "--token-env", "KEY"], "Zed does not support variables in its file"),
        (["codex", "--token-env", "KEY"], "put the token into MCP_TOKEN"),
        (["codex", "--with-token", "--transport", "http"], "which is empty"),
        (["vscode", "--with-token"], "which is empty"),
        (["vscode", "--token-env", "mcp-secret"], "name of a variable"),
        (["vscode", "--transport", "http", "--user", "ada"], "--user and --scope require stdio"),
        (["vscode", "--user", "ada", "--token-env", "KEY"], "cannot be combined"),
        (["vscode", "--url", "http://a.example"], "--url requires"),
        (["generic", "--write"], "name it with --file"),
        (["vscode", "--server", "web"], '["web"]["TRANSPORTS"] does not contain "stdio"'),
    )
    for arguments, complaint in cases:
        with subtests.test(arguments=arguments, complaint=complaint):
            servers = {"default": {}, "web": {"TRANSPORTS": ["http"]}}
            with override_settings(MCP={"SERVERS": servers}), pytest.raises(CommandError) as caught:
                install(*arguments)
            assert complaint in str(caught.value)


def test_options_and_settings_become_part_of_the_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.other")
    with override_settings(MCP={"SERVERS": {"default": {}, "staff": {"NAME": "The staff's"}}}):
        options = ["--server", "staff", "--user", "ada", "--scope", "a", "--scope", "b"]
        found = entry("cursor", *options, name="The-staff-s")
        assert found["args"][2:] == ["--server", "staff", "--user", "ada", "--scope", "a", "--scope", "b"]
        assert found["env"] == {"DJANGO_SETTINGS_MODULE": "shop.other"}
    directory = str(home / "site")
    module = ["-m", "mcp_django", "--settings", "shop.other", "--pythonpath"]
    assert entry("cursor", "--module")["args"] == [*module, directory]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/django-admin", "mcp_install"])
    monkeypatch.chdir(home)
    assert entry("cursor")["args"] == [*module, str(home)]


def test_writing_is_idempotent_and_removing_keeps_the_rest(home: Path, subtests: pytest.Subtests) -> None:
    for client in WRITTEN:
        with subtests.test(client=client):
            path = home / FILES[client]
            printed = install(client)
            install(client, "--write")
            assert path.read_text() == printed
            install(client, "--write")
            assert "already" in LAST_RUN.stderr
            assert [made.name for made in path.parent.iterdir() if made.name.startswith(path.name)] == [path.name]
            install(client, "--write", "--user", "ada")
            assert "ada" in path.read_text()
            assert path.with_name(path.name + ".bak").read_text() == printed
            install(client, "--remove")
            data = loaded(client, path.read_text())
            assert data.get(SECTIONS.get(client, "mcpServers"), {}) == {}
            install(client, "--remove")
            assert "is not in" in LAST_RUN.stderr


def test_the_command_of_claude_code_is_shown() -> None:
    install("claude-code")
    assert "claude mcp add-json django '{" in LAST_RUN.stderr
    install("claude-code", "--name", "two words")
    assert "claude mcp add-json 'two words' '{" in LAST_RUN.stderr


def test_each_operating_system_has_its_own_paths(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert (
        CLIENT_PROGRAMS["claude"].path(home) == home / "Library/Application Support/Claude/claude_desktop_config.json"
    )
    assert CLIENT_PROGRAMS["zed"].path(home) == home / ".config/zed/settings.json"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("APPDATA", str(home / "Roaming"))
    assert CLIENT_PROGRAMS["claude"].path(home) == home / "Roaming/Claude/claude_desktop_config.json"
    assert CLIENT_PROGRAMS["zed"].path(home) == home / "Roaming/Zed/settings.json"


def test_mode_and_link_are_kept_and_no_temporary_file_remains(home: Path) -> None:
    real = home / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text('{"mcpServers": {}}')
    real.chmod(0o640)
    link = home / FILES["windsurf"]
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    install("windsurf", "--write")
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert "django" in json.loads(real.read_text())["mcpServers"]
    assert sorted(path.name for path in real.parent.iterdir()) == ["mcp.json", "mcp.json.bak"]
    assert stat.S_IMODE((real.parent / "mcp.json.bak").stat().st_mode) == 0o640


HOSTILE = {
    "no json": b"{",
    "two values": b"{} {}",
    "list": b"[]",
    "section no object": b'{"mcpServers": []}',
    "twice": b'{"a": 1, "a": 2}',
    "no utf-8": b'{"a": "\xff"}',
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "deep": b"[" * 5000,
    "comment open": b"{} /*",
    "single quotes": b"{'a': 1}",
    "nan": b'{"a": NaN}',
    "control": b'{"a": "\x01"}',
}


def test_files_that_cannot_be_changed_are_not_written(home: Path, subtests: pytest.Subtests) -> None:
    for content in HOSTILE.values():
        for how in ("--write", "--remove"):
            with subtests.test(content=content, how=how):
                path = home / FILES["cursor"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                out = StringIO()
                with pytest.raises(CommandError, match="was left unchanged"):
                    call_command("mcp_install", "cursor", how, stdout=out, stderr=StringIO())
                assert path.read_bytes() == content
                assert [made.name for made in path.parent.iterdir()] == [path.name]
                if how == "--write" and "utf" not in str(content) and b"\xff" not in content:
                    assert "mcp_stdio" in out.getvalue()

    for content in (
        b"a = ",
        b"mcp_servers = 1",
        b"mcp_servers = {}",
        b"[[mcp_servers]]",
        b"a = 1\na = 2",
        b"a = " + b"[" * 5000,
    ):
        with subtests.test(content=content):
            path = home / FILES["codex"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            with pytest.raises(CommandError, match="was left unchanged"):
                install("codex", "--write")
            assert path.read_bytes() == content


def test_paths_that_are_not_files_are_unchanged(home: Path) -> None:
    for path in (home / "directory", home / "pipe", home / "loop"):
        if path.name == "directory":
            path.mkdir()
        elif path.name == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(path)
        with pytest.raises(CommandError, match="cannot be read"):
            install("cursor", "--write", "--file", str(path))


def test_a_file_that_changes_during_the_command_is_not_overwritten(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / FILES["cursor"]
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    monkeypatch.setattr(jsonc, "put", lambda *arguments: path.write_text('{"theirs": 1}') and "{}")
    with pytest.raises(CommandError, match="changed by another program"):
        install("cursor", "--write")
    assert path.read_text() == '{"theirs": 1}'
    assert [made.name for made in path.parent.iterdir()] == [path.name]


COMMENTED = """\
// My settings
{
\t"theme": "dark", // nice
\t/* servers */
\t"context_servers": {
\t\t"other": { "command": "x", "args": [1.0, 1e5] } // the other one
\t\t// to be continued
\t},
\t"last": [
\t\t"a",
\t], // and this
}
"""


def test_comments_and_layout_are_kept(home: Path) -> None:
    path = home / FILES["zed"]
    path.parent.mkdir(parents=True)
    path.write_text(COMMENTED)
    install("zed", "--write", "--name", "shop")
    changed = path.read_text()
    assert changed == COMMENTED.replace(
        "] } // the other one\n\t\t// to be continued\n",
        "] }, // the other one\n\t\t// to be continued\n"
        f'\t\t"shop": {{\n\t\t\t"command": "{sys.executable}",\n\t\t\t"args": [\n'
        f'\t\t\t\t"{home}/site/manage.py",\n\t\t\t\t"mcp_stdio"\n\t\t\t]\n\t\t}}\n',
    )
    install("zed", "--remove", "--name", "shop")
    assert path.read_text() == COMMENTED


def test_comments_of_codex_are_kept(home: Path) -> None:
    path = home / FILES["codex"]
    path.parent.mkdir(parents=True)
    before = 'model = "o9" # mine\n\n[mcp_servers.other]\ncommand = "x"\n'
    after = '\n# What follows is hers\n[profiles."a.b"]\nx = """\n[mcp_servers.no]\n"""\n'
    old = '\n[mcp_servers.shop] # ours\ncommand = "old"\n[mcp_servers.shop.env]\nA = "1"\n'
    path.write_text(before + old + after)
    install("codex", "--write", "--name", "shop", "--user", 'a"d\\a')
    changed = path.read_text()
    assert before in changed
    assert after in changed
    assert 'command = "old"' not in changed
    assert tomllib.loads(changed)["mcp_servers"]["shop"]["args"][-1] == 'a"d\\a'
    install("codex", "--remove", "--name", "shop")
    assert tomllib.loads(path.read_text()) == tomllib.loads(before + after)


def test_text_that_looks_like_the_table_is_kept(home: Path) -> None:
    path = home / FILES["codex"]
    path.parent.mkdir(parents=True)
    rest = '[other]\nx = """\n[mcp_servers.shop]\n"""\n'
    path.write_text(f'[mcp_servers.shop]\ncommand = "x"\n{rest}')
    install("codex", "--write", "--name", "shop")
    assert path.read_text().startswith(rest)
    install("codex", "--remove", "--name", "shop")
    assert path.read_text().rstrip() == rest.rstrip()


def test_a_toml_file_whose_notation_prevents_the_change_is_unchanged(home: Path) -> None:
    path = home / FILES["codex"]
    path.parent.mkdir(parents=True)
    content = 'mcp_servers = { other = { command = "x" } }\n'
    path.write_text(content)
    with pytest.raises(CommandError, match="could not be changed safely"):
        install("codex", "--write", "--name", "shop")
    assert path.read_text() == content


def test_comments_after_a_table_belong_to_the_next_one() -> None:
    table, rest = "[s.n]\na = 1 # ours\n[s.n.env]\nb = 2\n", "\n# hers\n[next] # too\nc = 0x10\n"
    assert toml_text.drop(table + rest, "s", "n") == rest
    assert toml_text.put(table + rest, "s", "n", {"a": "b"}) == f'{rest}\n[s.n]\na = "b"\n'


def test_dotted_keys_and_line_ends_are_kept() -> None:
    text = "[s]\r\nother.a = 1 # first\r\n\r\n[x]\r\n"
    changed = toml_text.put(text, "s", "n", {"a": ["b"]})
    assert changed == f'{text}\r\n[s.n]\r\na = ["b"]\r\n'
    assert toml_text.drop(changed, "s", "n").rstrip() == text.rstrip()


def test_without_tomlkit_the_command_names_the_extra(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toml_text, "IS_INSTALLED", False)
    with pytest.raises(CommandError, match=r"mcp-django-channels\[codex\]"):
        install("codex", "--write")


def test_line_ends_and_byte_order_marks_are_kept(home: Path, subtests: pytest.Subtests) -> None:
    for newline in ("\n", "\r\n"):
        with subtests.test(newline=newline):
            path = home / FILES["cursor"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(("\ufeff" + newline.join(["{", '    "a": 1', "}", ""])).encode())
            install("cursor", "--write")
            changed = path.read_bytes()
            assert changed.startswith(b"\xef\xbb\xbf{" + newline.encode() + b'    "a": 1,' + newline.encode())
            assert changed.count(b"\n") == changed.count(newline.encode())


def test_entries_are_added_and_removed_in_place(subtests: pytest.Subtests) -> None:
    cases = (
        ("{}", '{\n  "s": {\n    "n": 1\n  }\n}'),
        ('{"a":1}', '{"a":1,\n  "s": {\n    "n": 1\n  }\n}'),
        ('{"s":{}}', '{"s":{\n    "n": 1\n  }}'),
        ('{"s": {"n": 0, "m": 2}}', '{"s": {"n": 1, "m": 2}}'),
        ("  \n", '{\n  "s": {\n    "n": 1\n  }\n}\n'),
        ("{ // c\n}", '{ // c\n  "s": {\n    "n": 1\n  }\n}'),
        ('{\n  "s": {"m": 1,},\n}\n', '{\n  "s": {"m": 1,\n    "n": 1\n  },\n}\n'),
    )
    for before, after in cases:
        with subtests.test(before=before, after=after):
            assert jsonc.put(before, "s", "n", 1) == after

    cases = (
        ('{"s": {"n": 1}}', '{"s": {}}'),
        ('{"s": {"m": 1, "n": 1}}', '{"s": {"m": 1 }}'),
        ('{"s": {"n": 1, "m": 1}}', '{"s": { "m": 1}}'),
        ('{"s": {\n  "m": 1,\n  "n": 1\n}}', '{"s": {\n  "m": 1\n}}'),
        ('{"s": {\n  "m": 1,\n  "n": 1,\n}}', '{"s": {\n  "m": 1,\n}}'),
        ("{}", "{}"),
        ("", ""),
    )
    for before, after in cases:
        with subtests.test(before=before, after=after):
            assert jsonc.drop(before, "s", "n") == after


TEXT = st.text('aä"\\\n\x7f{}[]:,/*#\U0001f600', max_size=6)
KEYS = st.sampled_from(["s", "n", "m", 'a"b', "ä"])
DATA = st.dictionaries(
    KEYS, st.one_of(st.integers(), TEXT, st.lists(st.booleans(), max_size=3), st.dictionaries(KEYS, TEXT, max_size=3))
)


@given(DATA, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_any_object_keeps_its_other_entries(data: dict[str, Any], indent: Any, ascii: bool) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=ascii)
    if not isinstance(data.get("s", {}), dict):
        with pytest.raises(ValueError, match="not an object"):
            jsonc.put(text, "s", "n", {"x": ["y"]})
        return
    changed = jsonc.put(text, "s", "n", {"x": ["y"]})
    assert json.loads(changed) == {**data, "s": {**data.get("s", {}), "n": {"x": ["y"]}}}
    without = json.loads(jsonc.drop(changed, "s", "n"))
    assert without == {**data, "s": {key: value for key, value in data.get("s", {}).items() if key != "n"}}


@given(st.text('{}[]:,"s\\n1-./* \n', max_size=40))
def test_text_of_any_kind_is_json_or_an_error(text: str) -> None:
    try:
        jsonc.put(text, "s", "n", 1)
    except ValueError:
        pass


@given(st.dictionaries(KEYS, TEXT), TEXT.filter(bool))
def test_any_name_and_value_can_be_written_as_toml(entry: dict[str, str], name: str) -> None:
    changed = toml_text.put("a = 1\n", "s", name, dict(entry))
    assert tomllib.loads(changed) == {"a": 1, "s": {name: entry}}
