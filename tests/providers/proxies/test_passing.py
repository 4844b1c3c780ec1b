"""What a remote lists and does, through a proxy, in both eras."""

import pytest

from tests.server.engine import HANDSHAKE, STATELESS, accept

from .remote import Remote, peer_of

BOTH = pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])


@BOTH
async def test_lists(version: str) -> None:
    peer = peer_of(Remote(), version=version)
    assert await peer.names() == ["r__add", "r__fails", "r__greet", "r__slow", "r__steps"]
    assert await peer.names("prompts/list", "prompts") == ["r__plan"]
    assert await peer.names("resources/list", "resources", "uri") == ["thing://one"]
    assert await peer.names("resources/templates/list", "resourceTemplates", "uriTemplate") == ["thing://by/{name}"]


@BOTH
@pytest.mark.parametrize("upstream", ["stateless", "handshake"])
async def test_a_question_is_passed_on(version: str, upstream: str) -> None:
    remote = Remote(era=upstream)
    peer = peer_of(remote, version=version, answer=lambda method, params: accept(name="Ada"))
    assert await peer.text("r__greet") == "Hello Ada"
