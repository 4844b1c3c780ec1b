"""The composed project with a remote on Python's SDK. `make clients` has one on TypeScript's, and a real document."""

from collections.abc import Iterator

import pytest

from tests.composed import journey
from tests.composed.harness import Site, composed


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Three processes, for all tests here."""
    with composed() as running:
        yield running


@pytest.mark.parametrize("step", journey.JOURNEY, ids=lambda step: step.__name__)
async def test_from_one_endpoint(site: Site, step: journey.Step) -> None:
    await step(site)
