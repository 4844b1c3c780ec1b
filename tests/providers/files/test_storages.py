"""Django storages as resources."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, InMemoryStorage, Storage

from mcp_django.protocol.errors import InternalError, ResourceNotFound
from mcp_django.providers import StorageProvider
from mcp_django.schema import DeclarationError
from tests.server.client import PipelineClient, make_server


def filled(storage: Storage) -> Storage:
    for name, text in {"a.txt": "a", "docs/b.md": "bb", "docs/.c": "c", "docs/in/d.md": "d"}.items():
        storage.save(name, ContentFile(text.encode()))
    return storage


@pytest.fixture(params=["memory", "disk"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return filled(InMemoryStorage() if request.param == "memory" else FileSystemStorage(tmp_path / "media"))


def serving(storage: Any, **options: Any) -> PipelineClient:
    return PipelineClient(make_server(providers=[StorageProvider(storage, **{"uri_prefix": "media://", **options})]))


async def listed(client: PipelineClient) -> list[str]:
    return await client.names("resources/list", "resources", "name")


async def read(client: PipelineClient, uri: str) -> str:
    (contents,) = (await client.request("resources/read", {"uri": uri}))["contents"]
    return str(contents["text"])


async def test_files_of_a_storage_are_listed_and_read(storage: Storage) -> None:
    client = serving(storage)
    assert await listed(client) == ["a.txt", "docs/b.md", "docs/in/d.md"]
    assert await read(client, "media://docs/b.md") == "bb"


async def test_below_a_prefix_paths_are_relative_to_it(storage: Storage) -> None:
    client = serving(storage, prefix="docs/", pattern="**/*.md")
    assert await listed(client) == ["b.md", "in/d.md"]
    assert await read(client, "media://in/d.md") == "d"
    for path in ("../a.txt", "%2e%2e/a.txt", "a.txt", ".c", "in", ""):
        with pytest.raises(ResourceNotFound):
            await read(client, f"media://{path}")


async def test_max_size_holds_for_what_is_read(storage: Storage) -> None:
    with pytest.raises(InternalError, match="larger than 1 bytes"):
        await read(serving(storage, max_size=1), "media://docs/b.md")


async def test_links_in_a_file_storage_are_not_followed(tmp_path: Path) -> None:
    storage = filled(FileSystemStorage(tmp_path / "media"))
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "media" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "media" / "away").symlink_to(tmp_path)
    with storage.open("link.txt") as file:
        assert file.read() == b"secret", "the storage itself would"
    for options in ({}, {"prefix": "away"}):
        client = serving(storage, **options)
        assert not {"link.txt", "away/secret.txt", "secret.txt"} & set(await listed(client))
        for path in ("link.txt", "away/secret.txt", "secret.txt"):
            with pytest.raises(ResourceNotFound):
                await read(client, f"media://{path}")


async def test_an_alias_is_looked_up_when_it_is_used(settings: Any, tmp_path: Path) -> None:
    client = serving("default")
    settings.STORAGES = {"default": {"BACKEND": "django.core.files.storage.InMemoryStorage"}}
    assert await listed(client) == []


class Decrypting(FileSystemStorage):
    def _open(self, name: str, mode: str = "rb") -> Any:
        with super()._open(name, mode) as file:
            return ContentFile(file.read()[::-1])


async def test_a_storage_that_transforms_its_files_opens_them(tmp_path: Path) -> None:
    assert await read(serving(filled(Decrypting(tmp_path))), "media://docs/in/d.md") == "d"
    storage = Decrypting(tmp_path)
    storage.save("turned.txt", ContentFile(b"abc"))
    assert await read(serving(storage), "media://turned.txt") == "cba"


class Unlisted(InMemoryStorage):
    def listdir(self, path: str) -> tuple[Sequence[str], Sequence[str]]:  # type: ignore[override]
        raise NotImplementedError


class Broken(InMemoryStorage):
    def _open(self, name: str, mode: str = "rb") -> Any:
        raise RuntimeError("bucket s3://internal is down")


async def test_a_storage_that_cannot_list_can_be_read() -> None:
    client = serving(filled(Unlisted()))
    assert await listed(client) == []
    assert await read(client, "media://a.txt") == "a"


async def test_a_storage_error_is_reported_without_its_text() -> None:
    with pytest.raises(InternalError) as told:
        await read(serving(filled(Broken())), "media://a.txt")
    assert str(told.value) == "The resource could not be read"


def test_a_prefix_must_be_below_the_storage() -> None:
    with pytest.raises(DeclarationError):
        StorageProvider(InMemoryStorage(), uri_prefix="media://", prefix="../x")
