"""What the other processes of the tests do; light, for each of them imports it."""

import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tabr.serving.store import changes
from tabr.serving.store.changes import Change, ChangesCompacted, Store, open_store
from tabr.serving.store.connection import StoreError

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__])


def start(
    work: Callable[..., None], *arguments: Any
) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    """Run a function in a process; return it, and the end where its results arrive."""
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=work, args=(sender, *arguments), daemon=True)
    process.start()
    sender.close()
    return process, receiver


def finish(process: multiprocessing.process.BaseProcess, receiver: Connection) -> Any:
    """Return the last thing that a process has sent."""
    result: Any = None
    try:
        while wait([receiver], 60):
            result = receiver.recv()
    except EOFError:
        process.join()
    assert process.exitcode == 0
    return result


def keep(store: Store, name: str, after: int, key: str | None = None) -> Change:
    """Append a change with a name."""
    payload, response = {"name": name}, {"told": name}
    return store.append(lambda _: ("add", payload, response), after=after, key=key)[0]


def append_for_ever(sender: Connection, address: str, identity: str, n: int) -> None:
    """Append, and tell of each change when it is kept."""
    store = open_store(address, identity)
    after = len(store.changes(0))
    while True:
        change = keep(store, f"change {n}", after, f"key {n}")
        sender.send(n)
        after, n = change.seq, n + 1


def append_beside_others(
    sender: Connection, address: str, identity: str, name: str, n: int
) -> None:
    """Append n changes while others do; send their numbers and all that was seen."""
    store = open_store(address, identity)
    after, seen, kept = 0, {}, {}
    while len(kept) < n:
        item = f"{name} {len(kept)}"

        def make(newer: list[Change], item: str = item) -> Any:
            for change in newer:
                seen[change.seq] = change.payload["name"]
            return "add", {"name": item}, {}

        try:
            change, is_new = store.append(make, after=after)
        except ChangesCompacted:
            checkpoint = store.checkpoint()
            assert checkpoint is not None
            after = checkpoint[0]
            continue
        assert is_new
        kept[change.seq] = seen[change.seq] = item
        after = change.seq
    store.close()
    sender.send((kept, seen))


def limit(n_bytes: int | None) -> None:
    """Limit the size of files, as on a full disk; None lifts the limit."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    soft = hard if n_bytes is None else n_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def append_to_a_full_disk(
    sender: Connection, path: str, identity: str, rooms: list[int]
) -> None:
    """Run out of space, again and again; send what was kept and what was seen."""
    store = open_store(path, identity)
    kept, reasons = [], []
    for room in rooms:
        limit(os.path.getsize(f"{path}-wal") + room)
        for n in range(1000):
            name = f"{len(reasons)} {n} {'x' * 100}"
            try:
                keep(store, name, len(kept))
            except StoreError as error:
                reasons.append(str(error))
                break
            kept.append(name)
        try:
            store.compact(len(kept), bytes(1 << 20))
        except StoreError as error:
            reasons.append(str(error))
        assert [c.payload["name"] for c in store.changes(0)] == kept
        limit(None)
        keep(store, "room again", len(kept))
        kept.append("room again")
    sender.send((kept, reasons))


def fail_to_sync(path: str, identity: str, switch: str, how: str) -> None:
    """Append while syncing fails, say what came of it, and die."""
    changes.SETTLING_SECONDS = 0.2
    store = open_store(path, identity)
    keep(store, "before", 0)
    store.changes(0)  # whose connection keeps the log from being tidied away
    with open(switch, "w") as file:
        file.write(how)
    try:
        keep(store, "failed", 1)
    except StoreError as error:
        kept = [change.payload["name"] for change in store.changes(0)]
        print(type(error).__name__, *kept, error, sep="\n", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def forget_and_die(sender: Connection, folders: dict[str, str], ids: list[int]) -> None:
    """Forget rows of a model in each folder, killed at the step that is its name."""
    import tabr.tables.files
    from tabr.serving import compacted, served_model  # noqa: F401
    from tabr.serving.erasure import forget
    from tabr.serving.store.sqlite import SqliteConnection

    def die(*values: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_after(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *values, **more: (function(*values, **more), die())

    def vacuum(connection: Any) -> None:
        connection.database.set_progress_handler(die, 10)
        connection.execute("VACUUM")

    steps: dict[str, tuple[Any, str, Any]] = {
        "claimed": (Store, "claim", die_after(Store.claim)),
        "begun": (Store, "_write_checkpoint", die_after(Store._write_checkpoint)),
        "kept": (Store, "forget", die_after(Store.forget)),
        "overwriting": (SqliteConnection, "overwrite", vacuum),
        "overwritten": (Store, "overwrite", die_after(Store.overwrite)),
        "deleted": (compacted, "remove_old", die_after(compacted.remove_old)),
        "drafted": (tabr.tables.files, "_keep_access", die),
        "written": (forget, "_write", die_after(forget._write)),
    }
    ends = {}
    for name, folder in folders.items():
        child = os.fork()
        if child == 0:
            setattr(*steps[name])
            forget.forget(Path(folder) / "houses.tabr", ids, who="anna")
            os._exit(0)
        ends[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sender.send(ends)
