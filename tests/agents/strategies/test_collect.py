"""A listing reads as one line an entry; anything else stays what it is."""

from starloom.agents.strategies.collect import listing_text


def test_files_and_folders_read_apart():
    entries = [{"path": "a.txt", "kind": "file", "size_bytes": 3}, {"name": "sub", "kind": "folder"}]
    assert listing_text({"entries": entries}) == "a.txt (3 bytes)\nsub/"
    assert listing_text({"entries": [], "truncated": False}) == "(empty)"


def test_a_cut_listing_says_so():
    assert listing_text({"entries": [], "truncated": True}) == "… and more"


def test_another_shape_is_shown_as_it_is():
    assert listing_text(["a", "b"]) == '["a", "b"]'
    assert listing_text({"entries": ["a"]}) == '{"entries": ["a"]}'
