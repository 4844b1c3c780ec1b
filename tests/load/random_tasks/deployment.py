"""The processes of a run: two servers, two workers and Celery, each behind a proxy of its own to one PostgreSQL."""

import asyncio
import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.load.processes import GroupProcess
from tests.load.random_tasks.faults import ENDS, Fault, FaultKind, PlannedFault
from tests.load.random_tasks.proxy import Proxy, ProxyLoop, ProxyState
from tests.load.task_site.journal import FIRST_VERSION, Event
from tests.servers.databases import environment, migrate
from tests.support.own_postgres import OwnPostgres, own_postgres
from tests.support.ports import take_port
from tests.support.redis import OwnRedis, own_redis
from tests.support.services import postgres_database

SITE = "tests.load.task_site.settings"
BACKENDS = "mcp_django.contrib.tasks.backends"
IN_PROCESS, CELERY = f"{BACKENDS}.in_process.InProcessBackend", f"{BACKENDS}.celery.CeleryBackend"
SERVER = ["-m", "uvicorn", "--host", "127.0.0.1", "--log-level", "warning"]
WORKER = ["-m", "django", "mcp_worker", "--concurrency", "5", "--poll", "0.3", "--drain", "3"]
CELERY_WORKER = ["-m", "celery", "-A", "tests.load.task_site.celery_app", "worker", "-P", "prefork", "-c", "3"]
SERVERS = ("server-1", "server-2")
WORKERS = ("worker-1", "worker-2", "celery")
OLD = ("worker-1", "celery")
"""Processes that run old code until the deploy."""
TERMINATE_SECONDS = 15.0
"""Seconds for a process to end in order."""
SUPERVISION_SECONDS = 1.0
QUESTION_WAIT_SECONDS = 8.0
"""Maximum seconds to wait for a tool that asks."""
PROXY_STATES = {
    FaultKind.CUT: ProxyState.CUT,
    FaultKind.STALL: ProxyState.STALLED,
    FaultKind.DEAFEN: ProxyState.DEAF,
}


class Deployment:
    """Running processes and services, and the faults that they have had."""

    def __init__(self, directory: Path, postgres: OwnPostgres, redis: OwnRedis) -> None:
        self.journal = directory / "journal"
        self.journal.touch()
        self.directory = directory
        self.postgres = postgres
        self.redis = redis
        self.processes: dict[str, GroupProcess] = {}
        self.proxies: dict[str, Proxy] = {}
        self.ports = {name: take_port() for name in SERVERS}
        self.faults: list[Fault] = []
        self._lock = threading.Lock()

    def start(self, proxies: ProxyLoop, clocks: Mapping[str, float], *, lease: float) -> None:
        """Start all processes, those of `OLD` with old code.

        `clocks` has the seconds by which their clocks are early.
        """
        for name in (*SERVERS, *WORKERS):
            self.proxies[name] = proxies.open(self.postgres.port)
            database = {**postgres_database(self.postgres.url), "PORT": self.proxies[name].port, "OPTIONS": {}}
            environ = {
                **environment(database, SITE),
                "SITE_BROKER": self.redis.url.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host="),
                "SITE_CLOCK_DIFFERENCE": str(clocks[name]),
                "SITE_EVENTS": str(self.directory / "events"),
                "SITE_JOURNAL": str(self.journal),
                "SITE_OWNER": str(os.getpid()),
                "SITE_PROCESS": name,
                "SITE_SETTINGS": json.dumps(self._build_settings(name, lease)),
                "SITE_TOKEN": secrets.token_hex(8),
                **({"SITE_VERSION": FIRST_VERSION} if name in OLD else {}),
            }
            self.processes[name] = GroupProcess(self._build_arguments(name), environ, self.directory / f"{name}.log")

    def _build_arguments(self, name: str) -> list[str]:
        if name in SERVERS:
            return [*SERVER, "--port", str(self.ports[name]), "tests.servers.site.asgi:application"]
        return CELERY_WORKER if name == "celery" else WORKER

    def _build_settings(self, name: str, lease: float) -> dict[str, Any]:
        layer = {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [self.redis.url]}}
        mcp = {
            "AUTH": "none",
            "SERVERS": {"default": {"EXTENSIONS": ["mcp_django.contrib.tasks.Tasks"]}},
            "LIMITS": {"THREADS": 8, "SHUTDOWN_GRACE": 3},
            "TASKS": {
                "BACKEND": IN_PROCESS if name == SERVERS[0] else CELERY,
                "CONCURRENCY": 4,
                "LEASE": lease,
                "TASKS_PER_OWNER": 10_000,
                "TASKS_PER_SERVER": 10_000,
            },
        }
        return {"CHANNEL_LAYERS": {"default": layer}, "MCP": mcp}

    def inject(self, planned: PlannedFault) -> None:
        """Cause a fault, end it after its seconds, and record it."""
        time.sleep(planned.delay)
        begin = time.monotonic()
        if planned.kind in ENDS:
            self._end_process(planned.kind, planned.process)
        elif planned.kind is FaultKind.PAUSE:
            process = self.processes[planned.process]
            process.send(signal.SIGSTOP)
            time.sleep(planned.seconds)
            process.send(signal.SIGCONT)
        elif planned.kind in PROXY_STATES:
            proxy = self.proxies[planned.process]
            proxy.set_state(PROXY_STATES[planned.kind])
            time.sleep(planned.seconds)
            proxy.set_state(ProxyState.OPEN, resets=planned.kind is FaultKind.DEAFEN)
        elif planned.kind is FaultKind.REDIS_CRASH:
            self.redis.stop()
            time.sleep(planned.seconds)
            self.redis.start()
        else:
            begin = self._stop_postgres(planned)
        with self._lock:
            self.faults.append(Fault(planned.kind, planned.process, begin, time.monotonic()))

    def _end_process(self, kind: FaultKind, name: str) -> None:
        process = self.processes[name]
        if kind is not FaultKind.KILL:
            process.terminate(TERMINATE_SECONDS)
        with self._lock:
            process.kill()
            if kind is FaultKind.DEPLOY:
                process.environ.pop("SITE_VERSION", None)
            process.start()

    def _stop_postgres(self, planned: PlannedFault) -> float:
        """Stop PostgreSQL for some seconds; return the time of the stop."""
        if planned.kind is FaultKind.CRASH_AT_QUESTION:
            self._wait_for_question()
        begin = time.monotonic()
        self.postgres.stop("fast" if planned.kind is FaultKind.POSTGRES_RESTART else "immediate")
        time.sleep(planned.seconds)
        self.postgres.start()
        return begin

    def _wait_for_question(self) -> None:
        end = time.monotonic() + QUESTION_WAIT_SECONDS
        with self.journal.open() as journal:
            journal.seek(0, os.SEEK_END)
            while time.monotonic() < end:
                if f" {Event.ASK}\n" in journal.readline():
                    return
                time.sleep(0.001)

    async def supervise(self) -> None:
        """Start processes again that end by themselves, for example because they start while PostgreSQL is away."""
        while True:
            await asyncio.sleep(SUPERVISION_SECONDS)
            with self._lock:
                for process in self.processes.values():
                    if process.has_ended():
                        process.start()

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()


@contextmanager
def deploy(directory: Path, clocks: Mapping[str, float], *, lease: float) -> Iterator[Deployment]:
    """Start services and processes, which are gone after the block."""
    with ExitStack() as stack:
        postgres, redis = stack.enter_context(own_postgres()), stack.enter_context(own_redis())
        migrate({**postgres_database(postgres.url), "OPTIONS": {}}, SITE)
        proxies = ProxyLoop()
        stack.callback(proxies.close)
        deployment = Deployment(directory, postgres, redis)
        stack.callback(deployment.close)
        deployment.start(proxies, clocks, lease=lease)
        yield deployment
