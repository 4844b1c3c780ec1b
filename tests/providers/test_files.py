"""Files and directories as resources; a refused path answers like a missing one."""

import asyncio
import base64
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_django.protocol.errors import InternalError, MCPError, ResourceNotFound
from mcp_django.providers import DirectoryProvider, FileResource, Provider
from mcp_django.providers.files.patterns import FileSelection
from mcp_django.schema import DeclarationError
from tests.server.client import HANDSHAKE, PipelineClient, make_principal, make_server
from tests.support.waiting import WAIT_SECONDS


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    (root / "guide" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "readme.md").write_text("# Hello\n")
    (root / "guide" / "intro.md").write_text("Grüße")
    (root / "guide" / "deep" / "data.json").write_text("{}")
    (root / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (root / "odd #?%.txt").write_text("odd")
    (root / ".env").write_text("SECRET=1")
    (root / ".git" / "config").write_text("secret")
    (tmp_path / "secret.txt").write_text("secret")
    return root


def peer(*providers: Provider, principal: Any = None, **given: Any) -> PipelineClient:
    return PipelineClient(make_server(providers=providers), **({"principal": principal} if principal else {}), **given)


def serving(root: Path, pattern: Any = "**/*", **options: Any) -> PipelineClient:
    return peer(DirectoryProvider(root, pattern, **{"uri_prefix": "docs://", **options}))


async def read(client: PipelineClient, uri: str) -> dict[str, Any]:
    (contents,) = (await client.request("resources/read", {"uri": uri}))["contents"]
    found: dict[str, Any] = contents
    return found


async def listed(client: PipelineClient) -> list[str]:
    return await client.names("resources/list", "resources", "name")


async def absent(client: PipelineClient, uri: str) -> str:
    """Read the error of a path, which must equal that of a file that never existed."""
    with pytest.raises(ResourceNotFound) as nothing:
        await read(client, "docs://never-was.txt")
    with pytest.raises(ResourceNotFound) as found:
        await read(client, uri)
    assert (found.value.code, found.value.message) == (nothing.value.code, nothing.value.message)
    return str(found.value)


async def test_a_directory_is_a_list_and_a_template(docs: Path) -> None:
    client = serving(docs, title="Documents", description="What we know.")
    resources = {entry["name"]: entry for entry in (await client.request("resources/list"))["resources"]}
    assert sorted(resources) == ["guide/deep/data.json", "guide/intro.md", "logo.png", "odd #?%.txt", "readme.md"]
    assert resources["readme.md"] == {
        "uri": "docs://readme.md",
        "name": "readme.md",
        "mimeType": "text/markdown",
        "size": 8,
    }
    (template,) = (await client.request("resources/templates/list"))["resourceTemplates"]
    assert template["uriTemplate"] == "docs://{+path}"
    assert (template["title"], template["description"]) == ("Documents", "What we know.")


async def test_every_listed_uri_can_be_read(docs: Path) -> None:
    client = serving(docs)
    entries = (await client.request("resources/list"))["resources"]
    found = {entry["name"]: await read(client, entry["uri"]) for entry in entries}
    assert found["guide/intro.md"] == {"uri": "docs://guide/intro.md", "mimeType": "text/markdown", "text": "Grüße"}
    assert found["odd #?%.txt"]["text"] == "odd"
    assert base64.b64decode(found["logo.png"]["blob"]) == b"\x89PNG\r\n\x1a\n"
    assert found["logo.png"]["mimeType"] == "image/png"


async def test_sessions_read_the_same(docs: Path, subtests: pytest.Subtests) -> None:
    for version in [HANDSHAKE, "2024-11-05"]:
        with subtests.test(version=version):
            client = peer(DirectoryProvider(docs, uri_prefix="docs://manual/"), version=version)
            assert (await read(client, "docs://manual/readme.md"))["text"] == "# Hello\n"


async def test_paths_outside_and_hidden_paths_are_not_found(docs: Path, subtests: pytest.Subtests) -> None:
    for path in [
        "../secret.txt",
        "guide/../../secret.txt",
        "..%2Fsecret.txt",
        "%2e%2e/secret.txt",
        "%252e%252e/secret.txt",
        "guide/..%5C..%5Csecret.txt",
        "./readme.md",
        "guide//intro.md",
        "/etc/passwd",
        "//etc/passwd",
        "%2Fetc%2Fpasswd",
        "readme.md%00.png",
        "readme.md/",
        "guide",
        "guide/",
        "%FF",
        "x" * 300,
        "/".join(["a"] * 40),
        ".env",
        ".git/config",
        "guide/.hidden",
    ]:
        with subtests.test(path=path):
            (docs / "guide" / ".hidden").write_text("x")
            await absent(serving(docs), f"docs://{path}")


async def test_symbolic_links_are_not_found_at_any_level(docs: Path, tmp_path: Path) -> None:
    (docs / "link.txt").symlink_to(tmp_path / "secret.txt")
    (docs / "inside.md").symlink_to(docs / "readme.md")
    (docs / "away").symlink_to(tmp_path)
    (docs / "loop").symlink_to(docs / "loop")
    client = serving(docs)
    assert {"link.txt", "inside.md", "away/secret.txt", "loop"}.isdisjoint(await listed(client))
    for name in ("link.txt", "inside.md", "away/secret.txt", "away/docs/readme.md", "loop"):
        await absent(client, f"docs://{name}")


async def test_the_root_may_be_reached_through_a_link(docs: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(docs)
    assert (await read(serving(tmp_path / "current"), "docs://readme.md"))["text"] == "# Hello\n"


async def test_a_file_exchanged_for_a_link_after_the_check_is_not_read(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, target = os.stat, docs / "readme.md"

    def look(name: Any, *args: Any, **given: Any) -> os.stat_result:
        found = plain(name, *args, **given)
        if name == "readme.md" and not target.is_symlink():
            target.unlink()
            target.symlink_to(tmp_path / "secret.txt")
        return found

    monkeypatch.setattr("mcp_django.providers.files.sandbox.os.stat", look)
    with pytest.raises(ResourceNotFound):
        await read(serving(docs), "docs://readme.md")
    assert target.is_symlink()


async def test_a_directory_exchanged_for_a_link_after_its_opening_is_not_followed(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = os.open
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "intro.md").write_text("secret")

    def open_(name: Any, *args: Any, **given: Any) -> int:
        fd = plain(name, *args, **given)
        if name == "guide":
            (docs / "guide").rename(docs / "gone")
            (docs / "guide").symlink_to(tmp_path / "evil")
        return fd

    monkeypatch.setattr("mcp_django.providers.files.sandbox.os.open", open_)
    assert (await read(serving(docs), "docs://guide/intro.md"))["text"] == "Grüße"


async def test_pipes_and_devices_are_not_found_and_do_not_hang(docs: Path) -> None:
    os.mkfifo(docs / "pipe.txt")
    client = serving(docs)
    assert "pipe.txt" not in await listed(client)
    await absent(client, "docs://pipe.txt")
    await absent(peer(DirectoryProvider("/dev", uri_prefix="docs://")), "docs://zero")


async def test_a_file_exchanged_for_a_pipe_after_the_check_does_not_hang(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(docs / "pipe.txt")
    regular = (docs / "readme.md").stat()
    monkeypatch.setattr("mcp_django.providers.files.sandbox.os.stat", lambda *args, **given: regular)
    await absent(serving(docs), "docs://pipe.txt")


async def test_a_file_without_read_permission_is_not_found(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = os.open

    def open_(name: Any, *args: Any, **given: Any) -> int:
        if name == "readme.md":  # root, which may run tests, is refused nothing
            raise PermissionError(13, "Permission denied", name)
        return plain(name, *args, **given)

    monkeypatch.setattr("mcp_django.providers.files.sandbox.os.open", open_)
    await absent(serving(docs), "docs://readme.md")


async def test_hidden_files_are_served_on_request(docs: Path) -> None:
    client = serving(docs, hidden=True)
    assert ".git/config" in await listed(client)
    assert (await read(client, "docs://.env"))["text"] == "SECRET=1"


async def test_files_that_do_not_match_the_pattern_are_not_found(docs: Path) -> None:
    client = serving(docs, ["*.md", "guide/**/*.json"])
    assert await listed(client) == ["guide/deep/data.json", "readme.md"]
    await absent(client, "docs://guide/intro.md")
    await absent(client, "docs://logo.png")


async def test_without_recursive_there_are_no_directories(docs: Path) -> None:
    client = serving(docs, recursive=False)
    assert "guide/intro.md" not in await listed(client)
    await absent(client, "docs://guide/intro.md")


async def test_lists_are_bounded_and_the_rest_can_be_read(docs: Path) -> None:
    client = serving(docs, list_limit=2)
    assert len(await listed(client)) == 2
    assert (await read(client, "docs://guide/deep/data.json"))["text"] == "{}"
    assert await listed(serving(docs, list_limit=0)) == []


async def test_more_than_max_size_is_refused_whatever_size_is_reported(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InternalError, match="larger than 7 bytes"):
        await read(serving(docs, max_size=7), "docs://readme.md")
    assert (await read(serving(docs, max_size=8), "docs://readme.md"))["text"] == "# Hello\n"
    with pytest.raises(InternalError, match="larger than 1000 bytes"):  # its size is zero, and it has no end
        await read(peer(DirectoryProvider("/proc", uri_prefix="docs://", max_size=1000)), "docs://kallsyms")


async def test_text_and_binary_are_distinguished_by_content(docs: Path) -> None:
    (docs / "noext").write_bytes(b"plain")
    (docs / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (docs / "nul.txt").write_bytes(b"a\0b")
    (docs / "bom.txt").write_bytes(b"\xef\xbb\xbfhi")
    (docs / "drawing.svg").write_text("<svg/>")
    (docs / "empty.png").write_bytes(b"")
    (docs / "page.html.gz").write_bytes(b"\x1f\x8b")
    client = serving(docs)
    assert (await read(client, "docs://noext"))["mimeType"] == "text/plain"
    assert "blob" in await read(client, "docs://latin.txt")
    assert "blob" in await read(client, "docs://nul.txt")
    assert (await read(client, "docs://bom.txt"))["text"] == "hi"
    assert (await read(client, "docs://drawing.svg"))["text"] == "<svg/>"
    assert (await read(client, "docs://empty.png"))["blob"] == ""
    assert (await read(client, "docs://page.html.gz"))["mimeType"] == "application/gzip"


async def test_completions_are_paths_with_prefix_matches_first(docs: Path) -> None:
    client = serving(docs)

    async def complete(value: str) -> list[str]:
        asked = {"ref": {"type": "ref/resource", "uri": "docs://{+path}"}, "argument": {"name": "path", "value": value}}
        found: list[str] = (await client.request("completion/complete", asked))["completion"]["values"]
        return found

    assert await complete("gui") == ["guide/intro.md", "guide/deep/data.json"]
    assert await complete("INTRO") == ["guide/intro.md"]
    assert await complete("../") == []
    assert not any(".git" in path for path in await complete(""))


async def test_a_caller_without_permission_cannot_learn_which_files_exist(docs: Path) -> None:
    provider = DirectoryProvider(docs, uri_prefix="docs://", permission="docs.read")
    stranger, reader = peer(provider, principal=make_principal()), peer(provider, principal=make_principal("docs.read"))
    assert await listed(stranger) == []
    assert (await stranger.request("resources/templates/list"))["resourceTemplates"] == []
    assert await absent(stranger, "docs://readme.md") == await absent(stranger, "docs://nothing.md")
    asked = {"ref": {"type": "ref/resource", "uri": "docs://{+path}"}, "argument": {"name": "path", "value": ""}}
    with pytest.raises(MCPError, match="Unknown resource template"):
        await stranger.request("completion/complete", asked)
    assert (await read(reader, "docs://readme.md"))["text"] == "# Hello\n"
    assert "readme.md" in await listed(reader)


async def test_scopes_are_required(docs: Path) -> None:
    client = peer(DirectoryProvider(docs, uri_prefix="docs://", scopes=["docs"]), principal=make_principal())
    with pytest.raises(MCPError, match="Insufficient scope"):
        await read(client, "docs://readme.md")


async def test_a_disk_error_is_reported_without_its_path(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **given: Any) -> Any:
        raise OSError(5, "Input/output error", str(docs))

    monkeypatch.setattr("mcp_django.providers.files.sandbox.os.fdopen", broken)
    server = make_server(providers=[DirectoryProvider(docs, uri_prefix="docs://")], options={"expose_errors": True})
    with pytest.raises(InternalError) as told:
        await read(PipelineClient(server), "docs://readme.md")
    assert str(told.value) == "The resource could not be read"


async def test_no_path_of_the_machine_is_on_the_wire(docs: Path) -> None:
    client = serving(docs)
    said = [await client.request("resources/list"), await client.request("resources/templates/list")]
    said.append(await read(client, "docs://readme.md"))
    assert str(docs) not in repr(said)
    assert docs.parent.name not in repr(said)


async def test_a_missing_directory_is_empty(tmp_path: Path) -> None:
    client = serving(tmp_path / "later")
    assert await listed(client) == []
    await absent(client, "docs://readme.md")


def test_version_follows_the_list_and_the_files(docs: Path) -> None:
    provider = DirectoryProvider(docs, uri_prefix="docs://")
    first = provider.version
    assert provider.version == first
    os.utime(docs / "readme.md", ns=(1, 1))
    second = provider.version
    (docs / "readme.md").unlink()
    assert len({first, second, provider.version}) == 3
    assert DirectoryProvider(docs, uri_prefix="docs://", watch=False).version == ""


def test_listing_a_directory_leaves_no_file_open(docs: Path) -> None:
    provider = DirectoryProvider(docs, uri_prefix="docs://")
    before = len(list(Path("/proc/self/fd").iterdir()))
    _ = provider.version
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_one_file_at_one_uri(docs: Path, tmp_path: Path) -> None:
    client = peer(FileResource(docs / "readme.md", "info://readme", title="Read me"))
    (entry,) = (await client.request("resources/list"))["resources"]
    assert entry == {"uri": "info://readme", "name": "readme.md", "title": "Read me", "mimeType": "text/markdown"}
    assert (await read(client, "info://readme"))["text"] == "# Hello\n"
    (docs / "readme.md").unlink()
    (docs / "readme.md").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ResourceNotFound):
        await read(client, "info://readme")


def test_invalid_options_are_refused_at_the_declaration(docs: Path, subtests: pytest.Subtests) -> None:
    for given in [
        {"uri_prefix": "docs"},
        {"uri_prefix": "docs://x"},
        {"uri_prefix": "docs://{x}/"},
        {"uri_prefix": "docs://", "pattern": "/etc/*"},
        {"uri_prefix": "docs://", "pattern": []},
        {"uri_prefix": "docs://", "permision": "x"},
        {"uri_prefix": "docs://", "scopes": "docs"},
        {"uri_prefix": "docs://", "max_size": 0},
        {"uri_prefix": "docs://", "timeout": -1},
    ]:
        with subtests.test(given=given), pytest.raises(DeclarationError):
            DirectoryProvider(docs, **given)


def matches() -> Iterator[tuple[str, str, bool]]:
    yield from [("**/*", path, True) for path in ("a", "a/b", "a/b/c.md")]
    yield from [("*.md", "a.md", True), ("*.md", "a/b.md", False), ("a?c", "abc", True), ("a?c", "a/c", False)]
    yield from [("**/a/**", "a/b", True), ("**/a/**", "x/a/y/z", True), ("**/a/**", "a", False)]
    yield from [("[a-c].md", "b.md", True), ("[!a-c].md", "b.md", False), ("[!a].md", "/.md", False)]
    yield from [("[^a].md", "^.md", True), ("a.md", "aXmd", False), ("[", "[", True), ("a[]]b", "a]b", True)]


def test_patterns_match_like_globs(subtests: pytest.Subtests) -> None:
    for pattern, path, fits in list(matches()):
        with subtests.test(pattern=pattern, path=path, fits=fits):
            assert FileSelection(pattern).matches_pattern(path) is fits


def test_concurrent_lists_on_two_threads_are_complete(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under WSGI each request has a loop of its own."""
    provider = DirectoryProvider(docs, "**/*.md", uri_prefix="docs://")
    make, made = provider._build_path_resource, 0
    other_began, this_ended = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: asyncio.run(listed(peer(provider))))

    def made_slowly(*entry: Any) -> Any:
        nonlocal made
        if threading.current_thread() is other:
            other_began.set()
            assert this_ended.wait(WAIT_SECONDS)
        elif (made := made + 1) == 2:
            (docs / "readme.md").write_text("# Hello again\n")
            other.start()
            assert other_began.wait(WAIT_SECONDS)
        return make(*entry)

    monkeypatch.setattr(provider, "_build_path_resource", made_slowly)
    names = asyncio.run(listed(peer(provider)))
    this_ended.set()
    other.join(WAIT_SECONDS)
    assert names == ["guide/intro.md", "readme.md"]
