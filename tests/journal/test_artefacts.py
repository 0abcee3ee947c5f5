import asyncio
import os

import pytest

from starloom.errors import StoreError
from starloom.journal.artefacts import ArtefactRef, FileArtefacts, MemoryArtefacts, hash_of, hashes_in

HELLO = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


@pytest.fixture(params=["files", "memory"])
def artefacts(request, tmp_path):
    return FileArtefacts(tmp_path / "artefacts") if request.param == "files" else MemoryArtefacts()


@pytest.fixture
def files(tmp_path):
    return FileArtefacts(tmp_path / "artefacts")


async def test_bytes_come_back_by_their_hash(artefacts):
    ref = await artefacts.put(b"hello", "text/plain")
    assert ref == ArtefactRef(HELLO, 5, "text/plain")
    assert ref.to_json() == {"artefact": HELLO, "size_bytes": 5, "media_type": "text/plain"}
    assert await artefacts.get(HELLO) == b"hello"
    assert await artefacts.verify(HELLO)


async def test_missing_bytes_are_an_error(artefacts):
    with pytest.raises(StoreError, match="is not in"):
        await artefacts.get(HELLO)
    assert not await artefacts.verify(HELLO)


async def test_empty_bytes_are_bytes(artefacts):
    ref = await artefacts.put(b"")
    assert await artefacts.get(ref.hash) == b""


async def test_same_bytes_are_kept_once_also_when_put_at_once(files):
    refs = await asyncio.gather(*(files.put(b"hello") for _ in range(10)))
    assert {ref.hash for ref in refs} == {HELLO}
    assert [path.name for path in files.directory.glob("*/*")] == [HELLO[9:]]


async def test_damaged_file_is_an_error_and_the_next_put_repairs_it(files):
    await files.put(b"hello")
    files.path_of(HELLO).write_bytes(b"hell")
    assert not await files.verify(HELLO)
    with pytest.raises(StoreError, match="damaged"):
        await files.get(HELLO)
    await files.put(b"hello")
    assert await files.get(HELLO) == b"hello"


@pytest.mark.parametrize("name", ["../../etc/passwd", "sha256:../../x", "sha256:ABC", "", HELLO[7:], HELLO + "0"])
async def test_name_that_is_no_hash_reaches_no_file(files, name):
    with pytest.raises(StoreError, match="not an artefact's hash"):
        await files.get(name)


async def test_place_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="Could not write the artefact"):
        await FileArtefacts(tmp_path / "file").put(b"hello")


async def test_sweep_removes_what_nobody_keeps_and_leftovers_but_not_the_young(files):
    kept, old, young = [await files.put(content) for content in (b"kept", b"old", b"young")]
    leftover = files.path_of(kept.hash).with_name(".tmp-x")
    leftover.write_bytes(b"123")
    for path in (files.path_of(kept.hash), files.path_of(old.hash), leftover):
        os.utime(path, (1_000, 1_000))
    os.utime(files.path_of(young.hash), (5_000, 5_000))
    assert await files.sweep({kept.hash}, before=5_000) == (2, 6)
    assert [await files.verify(ref.hash) for ref in (kept, old, young)] == [True, False, True]
    assert not leftover.exists()


async def test_putting_again_makes_it_young(files):
    await files.put(b"hello")
    os.utime(files.path_of(HELLO), (1_000, 1_000))
    await files.put(b"hello")
    assert await files.sweep(set(), before=5_000) == (0, 0)


async def test_sweep_of_nothing(files):
    assert await files.sweep(set(), before=5_000) == (0, 0)


def test_hashes_are_found_in_the_text_of_events():
    other = hash_of(b"other")
    assert hashes_in(f'{{"a":{{"artefact":"{HELLO}"}},"b":["{other}","sha256:12"]}}') == {HELLO, other}
    assert hashes_in('{"a":1}') == set()
