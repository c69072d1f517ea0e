"""Services that tests need: they are started here, or the test says how to install them."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import create_engine, text

START_S = 60
STOP_S = 30


def need(what: str, apt: str) -> NoReturn:
    """Skip a test for want of a service; fail it where services are required.

    Args:
        what: the service, for people.
        apt: Debian's package of it.
    """
    message = f"expected {what}, found none: apt-get install -y {apt}"
    if os.environ.get("KVSTRATA_REQUIRE_SERVICES") == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """URL of an empty database of a PostgreSQL server that lives as long as the tests."""
    programs = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name)
    )
    if not programs or not (programs[-1] / "initdb").is_file():
        need("a PostgreSQL server", "postgresql")
    with _folder_of_its_own() as folder, _server(programs[-1], folder):
        yield f"postgresql+psycopg://kvstrata@/postgres?host={folder}"


@contextmanager
def database_of_its_own(postgresql: str) -> Iterator[str]:
    """URL of an empty database of a server, gone at the end."""
    name = f"test_{time.monotonic_ns()}"
    url = postgresql.replace("/postgres?", f"/{name}?")
    server, first = create_engine(postgresql, isolation_level="AUTOCOMMIT"), create_engine(url)
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    # The first session writes files: on a busy disk that may outlast a catalogue's patience.
    first.connect().close()
    first.dispose()
    yield url
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@contextmanager
def _folder_of_its_own() -> Iterator[Path]:
    # Not pytest's: that is private to this user, and the server refuses to run as root.
    folder = Path(tempfile.mkdtemp(prefix="kvstrata-postgresql-", dir="/tmp"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, *_unprivileged())
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _server(programs: Path, folder: Path) -> Iterator[None]:
    data, log = folder / "data", folder / "log"
    options = ["-U", "kvstrata", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    _check_call([programs / "initdb", "-D", data, *options], folder)
    # A socket in the folder: no port to collide on, nothing that another machine could reach.
    command = [programs / "postgres", "-D", data, "-k", folder, "-F", "-c", "listen_addresses="]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, **_identity())
    try:
        _wait_until_ready(programs, folder, process, log)
        yield
    finally:
        process.send_signal(signal.SIGINT)  # ends open sessions, then the server
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(
    programs: Path, folder: Path, process: subprocess.Popen[bytes], log: Path
) -> None:
    ready = [programs / "pg_isready", "-q", "-h", folder]
    deadline_s = time.monotonic() + START_S
    while subprocess.run(ready, check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline_s:
            pytest.fail(f"expected PostgreSQL to start, found:\n{log.read_text()}")
        time.sleep(0.05)


def _check_call(command: list[str | Path], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, **_identity()
    )
    if done.returncode != 0:
        pytest.fail(f"expected {command[0]} to succeed, found:\n{done.stdout}{done.stderr}")


def _identity() -> dict[str, object]:
    if os.geteuid() != 0:
        return {}
    user, group = _unprivileged()
    return {"user": user, "group": group, "extra_groups": []}


def _unprivileged() -> tuple[int, int]:
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return user.pw_uid, grp.getgrgid(user.pw_gid).gr_gid
    pytest.fail("expected a user postgres or nobody, since PostgreSQL refuses root; found neither")
