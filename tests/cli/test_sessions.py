"""``sessioncache sessions``: list, show, delete, fork and export, of hot, cold and deleted sessions."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sessioncache import SessionCache
from sessioncache.operations.inspect import inspect_session
from sessioncache.primitives.scopes import namespace_ref
from tests.cli.conftest import Run
from tests.conftest import StartRedis
from tests.helpers import (
    Stall,
    Urls,
    connect,
    evict,
    open_worker,
    raw,
    scope_key,
    session,
    settle,
    stored_values,
    user,
)

INFO = {
    "id",
    "org",
    "app",
    "user",
    "title",
    "created_at",
    "updated_at",
    "message_count",
    "token_total",
    "forked_from",
}
EVIL = "a\x1b[31m\tb\nc\u202e\x85"
TOLD = r"a\x1b[31m\tb\nc\u202e\x85"


# ---- list


async def test_hot_and_cold_sessions_of_all_apps_are_listed_and_deleted_ones_are_not(
    cache: SessionCache, urls: Urls, run: Run
) -> None:
    await cache.create("ada", session_id="cold", title="Über 日本語")
    await cache.create("bob", session_id="gone")
    await settle(urls)
    await cache.delete("bob", "gone")
    await cache.bound_to(app="other").create("ada", session_id="hot")
    await cache.bound_to(org="elsewhere").create("ada", session_id="foreign")
    header, *rows = (await run("sessions", "list")).rows
    assert header == ["id", "app", "user", "title", "updated", "messages", "tokens"]
    assert [row[:4] for row in rows] == [["hot", "other", "ada", ""], ["cold", "app", "ada", "Über 日本語"]]
    assert [row[0] for row in (await run("sessions", "list", "--app", "app")).rows[1:]] == ["cold"]
    assert [row[0] for row in (await run("sessions", "list", "--org", "elsewhere")).rows[1:]] == ["foreign"]
    nobody = await run("sessions", "list", "--user", "bob", "--all-apps")
    assert (nobody.code, len(nobody.rows)) == (0, 1)
    assert "there are no sessions" in nobody.err
    assert (await run("sessions", "list", "--all-apps", "--app", "app")).code == 2


@pytest.mark.parametrize("order", ["updated", "created"])
async def test_pages_follow_one_another_and_all_of_them_are_one_list(cache: SessionCache, run: Run, order: str) -> None:
    ids = [(await cache.create("ada", session_id=f"s{n}")).id for n in range(5)]
    await cache.touch("ada", "s0", messages=2, tokens=30)
    newest_first = ["s0", "s4", "s3", "s2", "s1"] if order == "updated" else ids[::-1]
    listing = ("sessions", "list", "--order", order, "--limit", "2", "--json")
    first = (await run(*listing)).json
    second = (await run(*listing, "--cursor", first["cursor"])).json
    whole = (await run(*listing, "--all")).json
    assert [one["id"] for one in first["sessions"] + second["sessions"]] == newest_first[:4]
    assert [one["id"] for one in whole["sessions"]] == newest_first
    assert whole["cursor"] is None
    assert set(first["sessions"][0]) == INFO
    touched = next(one for one in whole["sessions"] if one["id"] == "s0")
    assert (touched["message_count"], touched["token_total"]) == (2, 30)
    plain = await run("sessions", "list", "--order", order, "--limit", "2", "--all")
    assert [row[0] for row in plain.rows] == ["id", *newest_first]
    assert "--cursor" in (await run("sessions", "list", "--limit", "2")).err
    assert (await run(*listing, "--cursor", "nonsense")).code == 2


# ---- show


async def test_a_session_is_shown_with_its_keys_namespaces_and_lease_and_without_temp_keys(
    cache: SessionCache, urls: Urls, run: Run
) -> None:
    state: dict[str, Any] = {"b": [1, 2.0, 2**70, None], "a": "é\ud800", "user:u": 1, "app:p": 2, "temp:hush": "hush"}
    made = await cache.create("ada", session_id="s1", state=state, title="One")
    await made.namespace("tools").update({"x": 1, "y": 22})
    async with made.lease(ttl=60):
        said = await run("sessions", "show", "s1", "--json")
        seen = said.json["session"]
        assert "held, " in (await run("sessions", "show", "s1")).out
    assert seen["state"] == {"a": "é\ud800", "b": [1, 2.0, 2**70, None]}
    assert type(seen["state"]["b"][1]) is float
    assert seen["namespaces"] == {"tools": {"keys": 2, "bytes": 3}}
    assert (seen["hot"], seen["dirty"], seen["lease"]["held"], seen["keys"]) == (True, True, True, 2)
    assert 0 < seen["lease"]["seconds_left"] <= 60
    assert (seen["revision"], seen["title"], seen["forked_from"]) == (made.revision, "One", None)
    assert set(seen) > INFO
    assert "shared" not in seen
    assert "hush" not in said.out
    shared = await run("sessions", "show", "s1", "--shared")
    assert (await run("sessions", "show", "s1", "--shared", "--json")).json["session"]["shared"] == {
        "user": {"u": 1},
        "app": {"p": 2},
    }
    assert ["a", r'"é\ud800"'] in shared.rows
    assert ["u", "1"] in shared.rows
    assert ["tools", "2", "3"] in shared.rows
    assert "hush" not in shared.out
    await settle(urls)


async def test_a_cold_session_is_shown_whole_and_said_to_be_cold(cache: SessionCache, urls: Urls, run: Run) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1})
    await made.namespace("n").set("k", "v")
    await settle(urls)
    cold = (await run("sessions", "show", "s1", "--json")).json["session"]
    assert (cold["hot"], cold["dirty"], cold["lease"]) == (False, False, {"held": False, "seconds_left": None})
    assert (cold["state"], cold["namespaces"]) == ({"a": 1}, {"n": {"keys": 1, "bytes": 3}})
    assert (await run("sessions", "show", "s1", "--json")).json["session"]["hot"]
    await made.namespace("n").set("k", "w")
    assert (await run("sessions", "show", "s1", "--json")).json["session"]["dirty"], "for its namespace"


async def test_r5_the_lease_of_an_earlier_life_is_not_shown(cache: SessionCache) -> None:
    made = await cache.create("ada", session_id="s1")
    lease = made.lease(ttl=60)
    await lease.__aenter__()
    reading = Stall(cache._tiers.forking, "spaces")
    inspecting = asyncio.ensure_future(inspect_session(cache._tiers, cache._places("ada", "s1")))
    await reading.reached.wait()
    await cache.delete("ada", "s1")
    born = await cache.create("ada", session_id="s1")
    reading.release.set()
    seen = await inspecting
    assert (seen.info.created_at, seen.lease) == (born.created_at, None)
    await lease.__aexit__(None, None, None)


async def test_r17_the_lease_of_an_older_incarnation_is_not_shown(cache: SessionCache, urls: Urls, run: Run) -> None:
    made = await cache.create("ada", session_id="s1")
    async with made.lease(ttl=60):
        with raw(urls.redis) as client:
            control = scope_key(session("ada", "s1")).split("h:")[0] + "ctl"
            client.hset(control, mapping={"replid": "0" * 40, "run": "another process"})
        assert (await run("sessions", "show", "s1", "--json")).json["session"]["lease"]["held"] is False


async def test_a_session_that_is_not_there_is_exit_1_whatever_the_reason(cache: SessionCache, run: Run) -> None:
    await cache.create("ada", session_id="gone")
    await cache.create("ada", session_id="there")
    await cache.delete("ada", "gone")
    for words in (("gone",), ("never",), ("gone", "--user", "ada", "--app", "app"), ("there", "--user", "bob")):
        for action in ("show", "delete", "fork", "export"):
            said = await run("sessions", action, *words, "--json")
            assert (said.code, said.json["kind"]) == (1, "SessionNotFoundError")
            assert "there is no session" in said.err


async def test_of_several_sessions_of_one_id_the_user_and_app_are_asked_for(cache: SessionCache, run: Run) -> None:
    await cache.create("ada", session_id="s1", state={"of": "ada"})
    await cache.create("bob smith", session_id="s1", state={"of": "bob"})
    await cache.bound_to(app="other").create("ada", session_id="s1", state={"of": "other"})
    said = await run("sessions", "show", "s1", "--json")
    assert (said.code, said.json["kind"]) == (1, "AmbiguousSessionError")
    for choice in ("--app=app --user=ada", "--app=app --user='bob smith'", "--app=other --user=ada"):
        assert choice in said.err
    assert (await run("sessions", "show", "s1", "--user", "ada")).code == 1

    async def whose(*words: str) -> Any:
        return (await run("sessions", "show", "s1", *words, "--json")).json["session"]["state"]["of"]

    assert await whose("--app", "app", "--user", "ada") == "ada"
    assert await whose("--user", "bob smith") == "bob"
    assert await whose("--app", "other") == "other"


async def test_the_choice_between_several_sessions_can_be_copied_whatever_the_names_are(
    cache: SessionCache, run: Run
) -> None:
    users = {EVIL + "7'\\n", "--json", "", "$(id) ''"}
    for name in users:
        await cache.create(name, session_id="s1", state={"mine": name})
    _, *choices = (await run("sessions", "show", "s1")).err.splitlines()
    owners = set()
    for choice in choices:
        seen = await run("sessions", "show", "s1", *as_typed(choice), "--json")
        owners.add(seen.json["session"]["state"]["mine"])
    assert owners == users


def as_typed(line: str) -> list[str]:
    """The words that a shell makes of a line."""
    shell = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True)
    return shell.stdout.split("\0")[:-1]


async def test_no_control_character_of_a_user_is_printed(cache: SessionCache, run: Run) -> None:
    app = cache.bound_to(app=EVIL)
    made = await app.create(EVIL, session_id=EVIL, title=EVIL, state={EVIL: EVIL, "user:" + EVIL: EVIL})
    await made.namespace(EVIL).set("k", 1)
    await app.create("other", session_id=EVIL)
    printed = [
        await run("sessions", "list"),
        await run("sessions", "show", EVIL, "--user", EVIL, "--shared"),
        await run("sessions", "show", EVIL),
        await run("sessions", "fork", EVIL, "--user", EVIL, "--new-id", EVIL + "2"),
        await run("sessions", "delete", EVIL + "2"),
        await run("sessions", "show", EVIL + "2"),
    ]
    assert [said.code for said in printed] == [0, 0, 1, 0, 0, 1]
    for said in printed:
        assert TOLD in said.out + said.err
        assert not {"\x1b", "\u202e", "\x85"} & set(said.out + said.err)
    assert printed[0].rows[1][:4] == [TOLD] * 2 + ["other", ""]


# ---- delete, fork, export


async def test_delete_and_fork_wait_until_sql_has_it_where_that_is_asked_for(
    cache: SessionCache, urls: Urls, run: Run
) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": 1, "temp:t": 1})
    await made.namespace("n").set("k", 1)
    late = await run("sessions", "fork", "s1", "--new-id", "late", "--wait", "0", "--json")
    assert (late.code, late.json["forked"]["id"], late.json["durable"]) == (1, "late", False)
    assert late.json["problem"] in late.err
    async with open_worker(urls, flush_delay=0.01) as worker:
        working = asyncio.ensure_future(worker.run())
        forked = await run("sessions", "fork", "s1", "--new-id", "s2", "--wait", "20", "--json")
        assert (forked.code, forked.json["durable"], forked.json["forked"]["forked_from"]) == (0, True, "s1")
        assert stored_values(urls.database, session("ada", "s2")) == {"a": 1}
        deleted = await run("sessions", "delete", "s1", "--wait", "20", "--json")
        assert deleted.json == {"deleted": {"org": "", "app": "app", "user": "ada", "id": "s1"}, "durable": True}
        assert stored_values(urls.database, session("ada", "s1")) is None
        worker.stop()
        await working
    evict(urls.redis)
    again = await run("sessions", "fork", "s2", "--new-id", "late", "--json")
    assert (again.code, again.json["kind"]) == (1, "SessionExistsError")
    told = await run("sessions", "fork", "s2")
    assert told.out.startswith("forked s2 into the session sess_")
    assert "'ada'" in told.out
    assert (await run("sessions", "delete", "s2", "--json")).json["durable"] is None


async def test_an_export_is_what_the_library_exports(cache: SessionCache, urls: Urls, run: Run, tmp_path: Path) -> None:
    made = await cache.create("ada", session_id="s1", state={"a": "é\ud800", "n": 1.0, "temp:t": 1}, title=EVIL)
    await made.namespace("n").set("k", 2**70)
    await settle(urls)
    wanted = json.loads(json.dumps(await made.export()))
    assert (await run("sessions", "export", "s1", "--json")).json == wanted
    assert json.loads((await run("sessions", "export", "s1")).out) == wanted
    file = tmp_path / "s1.json"
    said = await run("sessions", "export", "s1", "--output", str(file), "--json")
    assert said.json == {"exported": {"org": "", "app": "app", "user": "ada", "id": "s1"}, "file": str(file)}
    assert json.loads(file.read_text()) == wanted
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_an_export_that_fails_leaves_the_file_as_it_was(
    cache: SessionCache, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache.create("ada", session_id="s1")
    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "s1.json"
    file.write_text("before")
    file.chmod(0o644)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        said = await run("sessions", "export", "s1", "--output", str(file))
    assert (said.code, file.read_text()) == (2, "before")
    assert "No space left" in said.err
    assert [path.name for path in file.parent.iterdir()] == ["s1.json"]
    link = tmp_path / "link.json"
    link.symlink_to(file)
    assert (await run("sessions", "export", "s1", "--output", str(link))).code == 0
    assert link.is_symlink()
    assert json.loads(file.read_text())["id"] == "s1"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "what was there before could be read by all"
    assert (await run("sessions", "export", "s1", "--output", str(tmp_path / "none" / "x"))).code == 2


async def test_what_is_no_regular_file_is_not_replaced_by_an_export(
    cache: SessionCache, run: Run, tmp_path: Path
) -> None:
    await cache.create("ada", session_id="s1")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert (await run("sessions", "export", "s1", "--output", str(pipe))).code == 0
    assert json.loads(os.read(reader, 65_536))["id"] == "s1"
    os.close(reader)
    assert pipe.is_fifo()


async def test_what_is_damaged_is_left_out_and_named(
    cache: SessionCache, start_redis: StartRedis, urls: Urls, run: Run
) -> None:
    on = Urls(start_redis().url, urls.database)
    async with connect(on) as cache:
        made = await cache.create("ada", session_id="s1", state={"good": 1, "bad": 2, "user:bad": 3})
        await made.namespace("skills").set("bad", 4)
    for scope in (session("ada", "s1"), user("ada"), namespace_ref(session("ada", "s1"), "skills")):
        with raw(on.redis) as client:
            value: Any = client.hget(scope_key(scope), "=bad")
            client.hset(scope_key(scope), "=bad", value[:9] + b"{hunter2")
    shown = await run("sessions", "show", "s1", "--shared", "--json", on=on)
    assert (shown.code, shown.json["session"]["state"]) == (0, {"good": 1})
    assert shown.json["session"]["damaged"] == ["bad", "user:bad"]
    assert "damaged, and not shown: bad, user:bad" in (await run("sessions", "show", "s1", "--shared", on=on)).err
    exported = await run("sessions", "export", "s1", on=on)
    assert (exported.code, json.loads(exported.out)["state"]) == (0, {"good": 1})
    assert "left out: bad\n" in exported.err
    assert "left out: bad of the namespace skills" in exported.err
    assert "hunter2" not in shown.out + exported.out + exported.err
