"""The processes of the chaos run: agents and workers, started again when a fault has ended them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.chaos.cast import agents
from tests.helpers import ROOT, Urls

WORKERS = 3
LEASE = 2.0
"""Seconds of a worker's lease."""


class Member:
    """One process of the fleet; what it prints goes to a file."""

    def __init__(self, name: str, folder: Path, *arguments: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.expected_to_die = False
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.expected_to_die = self.expected_to_die or number in (signal.SIGKILL, signal.SIGTERM)
        self.process.send_signal(number)

    def end(self, seconds: float) -> None:
        """SIGTERM, and SIGKILL where that does not help in time."""
        if self.process.poll() is None:
            self.send(signal.SIGTERM)
            self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Fleet:
    """All agents and workers."""

    def __init__(self, agents_urls: Urls, workers_urls: Urls, folder: Path, seed: str) -> None:
        self.agents_urls, self._workers_urls = agents_urls, workers_urls
        self._folder, self._seed = folder, seed
        self._runs = 0
        self.agents: dict[str, Member] = {}
        self.workers: dict[str, Member] = {}
        self.problems: list[str] = []

    def journal(self, agent: str) -> Path:
        """The file of an agent's journal."""
        return self._folder / f"{agent}.journal"

    def start(self) -> None:
        """Start who is missing; note who ended without having been told to."""
        for name in [f"w{number}" for number in range(WORKERS)]:
            if self._is_missing(self.workers, name):
                options = ("--flush-delay", "0.2", "--lease", f"{LEASE:g}", "--grace", "10")
                tiers = ("--redis", self._workers_urls.redis, "--database", self._workers_urls.database)
                self.workers[name] = Member(name, self._folder, "sessioncache_worker", *tiers, *options)
        for name in agents():
            if self._is_missing(self.agents, name):
                self._runs += 1
                journal = str(self.journal(name))
                arguments = (name, str(self._runs), *self.agents_urls, journal, self._seed)
                self.agents[name] = Member(name, self._folder, "tests.chaos.agent", *arguments)

    def _is_missing(self, members: dict[str, Member], name: str) -> bool:
        member = members.get(name)
        if member is None:
            return True
        code = member.process.poll()
        if code is not None and not member.expected_to_die:
            tail = member.log.read_text(errors="replace")[-600:].replace("\n", " / ")
            self.problems.append(f"{name} ended by itself with {code}: {tail}")
        return code is not None

    def end_agents(self) -> None:
        """Let every agent finish what it is doing."""
        for agent in self.agents.values():
            if agent.process.poll() is None:
                agent.send(signal.SIGTERM)
        for agent in self.agents.values():
            agent.end(30)

    def end_workers(self) -> None:
        """Let every worker finish what it has claimed."""
        for worker in self.workers.values():
            worker.end(20)

    def acknowledged(self) -> int:
        """How many bytes of outcome "ok" the journals hold: it grows while anybody is served."""
        paths = map(self.journal, self.agents)
        return sum(path.read_bytes().count(b'"outcome": "ok"') for path in paths if path.exists())
