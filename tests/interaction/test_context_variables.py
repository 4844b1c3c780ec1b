"""Context variables that MIDDLEWARE sets reach the handlers behind the view, and no other call."""

import asyncio

import pytest

from tests.interaction.clients import HANDSHAKE, STATELESS, Client

ANONYMOUS = ["anonymous", "anonymous"]
HANDLERS = ("actors", "actors_in_a_thread")
pytestmark = [pytest.mark.transports("view"), pytest.mark.revisions(HANDSHAKE[-1], STATELESS)]


@pytest.fixture(params=["sync_actor", "async_actor"])
def middleware(request, settings):
    """One middleware that sets variables, in a project with others of either kind."""
    path = f"tests.interaction.actors.{request.param}"
    settings.MIDDLEWARE = ["django.middleware.common.CommonMiddleware", path]


@pytest.fixture
def acting(transport, revision):
    """`await acting("ann")`: a client of a person."""

    async def connect(name=None):
        headers = {} if name is None else {"x-actor": name}
        return await Client(transport, revision, server="places", headers=headers).open()

    return connect


async def ask(client, name):
    return (await client.tool(name)).result["structuredContent"]["result"]


@pytest.mark.usefixtures("middleware")
async def test_variables_of_middleware_reach_handlers(acting, subtests):
    client = await acting("ann")
    for name in HANDLERS:
        with subtests.test(name=name):
            assert await ask(client, name) == ["ann", "ann"]


@pytest.mark.usefixtures("middleware")
async def test_variables_of_middleware_do_not_reach_the_next_call(acting, subtests):
    ann, stranger = await acting("ann"), await acting()
    for name in HANDLERS:
        with subtests.test(name=name):
            assert await ask(ann, name) == ["ann", "ann"]
            assert await ask(stranger, name) == ANONYMOUS


@pytest.mark.usefixtures("middleware")
async def test_a_request_that_middleware_stored_has_the_user_of_the_token(acting):
    client = await acting("ann")
    assert await ask(client, "user_of_the_request") == "alice"


@pytest.mark.django_db(transaction=True)
def test_background_work_has_the_variables_of_the_thread_that_added_it(transport, acting, checkpoints):
    async def run():
        await (await acting()).tool("add_job_in_a_thread")
        await checkpoints.until(f"job of {['ann', 'ann']}")

    transport.run(run())


@pytest.mark.usefixtures("middleware")
async def test_variables_of_concurrent_calls_are_separate(limits, acting, checkpoints):
    limits(SSE_UPGRADE_AFTER=0.01)  # Sync middleware holds its thread until the answer becomes a stream.
    ann, bob = await acting("ann"), await acting("bob")
    waiting = asyncio.ensure_future(ask(ann, "actors_at_the_end"))
    await checkpoints.until("actors reached")
    for name in HANDLERS:
        assert await ask(bob, name) == ["bob", "bob"]
    checkpoints.gate("actors").set()
    assert await waiting == ["ann", "ann"]


@pytest.mark.usefixtures("middleware")
async def test_variables_set_by_a_handler_do_not_leave_its_call(acting):
    client = await acting("ann")
    await client.tool("change_actor")
    for name in HANDLERS:
        assert await ask(client, name) == ["ann", "ann"]
