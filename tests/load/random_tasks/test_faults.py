"""Plans of faults, and proxies that cut, stall and deafen."""

import random
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.load.random_tasks.faults import ISOLATES, ROUND, FaultKind, FaultStep, plan_faults
from tests.load.random_tasks.proxy import Proxy, ProxyLoop, ProxyState
from tests.load.random_tasks.run import RandomRun
from tests.support.waiting import WAIT_SECONDS


def plan(seed: int, seconds: float = 400.0) -> list[FaultStep]:
    return plan_faults(random.Random(seed), seconds=seconds, lease=6.0, processes=["a", "b", "c"], old=["b", "c"])


def test_a_plan_depends_on_its_seed_only() -> None:
    assert plan(1) == plan(1) != plan(2)
    run = RandomRun(seed=1, tasks=20, seconds=60)
    assert run.plan_jobs() == run.plan_jobs()
    assert run.plan_faults() == run.plan_faults()
    assert run.plan_clocks() == run.plan_clocks()


def test_a_long_plan_has_each_kind_and_one_deploy_of_each_old_process() -> None:
    faults = [fault for step in plan(1) for fault in step.faults]
    assert {fault.kind for fault in faults} == {kind for kind, _ in ROUND} | {FaultKind.DEPLOY}
    assert [fault.process for fault in faults if fault.kind is FaultKind.DEPLOY] == ["b", "c"]


def test_each_isolation_is_clearly_shorter_or_longer_than_a_lease() -> None:
    lengths = {fault.seconds for step in plan(1) for fault in step.faults if fault.kind in ISOLATES}
    assert all(length <= 2 or length >= 7.8 for length in lengths)


def test_a_plan_fits_its_time() -> None:
    steps = plan(1, 60.0)
    assert sum(step.gap + max(fault.seconds for fault in step.faults) for step in steps) <= 60


@pytest.fixture
def echo() -> Iterator[Proxy]:
    """A proxy of a server that answers each line with the same line."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=[client], daemon=True).start()

    def answer(client: socket.socket) -> None:
        with client, client.makefile("rb") as lines:
            try:
                for line in lines:
                    received.append(line)
                    client.sendall(line)
            except OSError:
                pass

    received: list[bytes] = []
    threading.Thread(target=accept, daemon=True).start()
    proxies = ProxyLoop()
    proxy = proxies.open(listener.getsockname()[1])
    yield proxy
    proxies.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_SECONDS)


def test_a_cut_proxy_resets_old_and_new_connections_until_it_is_open(echo: Proxy) -> None:
    with connect(echo) as client:
        client.sendall(b"1\n")
        assert client.recv(2) == b"1\n"
        echo.set_state(ProxyState.CUT)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connect(echo) as client, pytest.raises(ConnectionResetError):
        client.recv(1)
    echo.set_state(ProxyState.OPEN)
    with connect(echo) as client:
        client.sendall(b"2\n")
        assert client.recv(2) == b"2\n"


@pytest.mark.parametrize("state", [ProxyState.STALLED, ProxyState.DEAF])
def test_a_stalled_or_deaf_proxy_finally_forwards_everything(echo: Proxy, state: ProxyState) -> None:
    with connect(echo) as client:
        echo.set_state(state)
        client.sendall(b"1\n")
        echo.set_state(ProxyState.OPEN)
        assert client.recv(2) == b"1\n"


def test_a_deaf_proxy_may_reset_instead(echo: Proxy) -> None:
    with connect(echo) as client:
        client.sendall(b"1\n")
        assert client.recv(2) == b"1\n"
        echo.set_state(ProxyState.DEAF)
        client.sendall(b"2\n")
        echo.set_state(ProxyState.OPEN, resets=True)
        with pytest.raises(ConnectionResetError):
            client.recv(2)
