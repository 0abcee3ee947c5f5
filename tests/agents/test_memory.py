"""Memory: private, immutable items, windowed to a budget."""

from hypothesis import given, strategies as st

from starloom.agents.memory import Memory, MemoryItem, clip, estimate_tokens


def item(step, size=40):
    return MemoryItem(step, "r" * size, "o" * size, "CONTINUE", actions=({"tool": "a", "arguments": {}},))


def test_the_newest_items_that_fit_are_kept_in_order():
    memory = Memory()
    for step in range(1, 6):
        memory.add_memory_item(item(step))
    assert [found.step for found in memory.window(100)] == [1, 2, 3, 4, 5]
    assert [found.step for found in memory.window(85)] == [4, 5]
    assert len(memory) == 5


def test_the_window_begins_at_the_same_item_for_many_steps():
    memory = Memory()
    beginnings = []
    for step in range(1, 31):
        memory.add_memory_item(item(step))
        beginnings.append(memory.window(200)[0].step)
    assert beginnings == sorted(beginnings)
    assert len(set(beginnings)) == 5


def test_the_newest_item_is_always_there():
    memory = Memory()
    memory.add_memory_item(item(1, size=4_000))
    assert [found.step for found in memory.window(1)] == [1]
    assert Memory().window(100) == ()


def test_two_memories_share_nothing():
    one, other = Memory(), Memory()
    one.add_memory_item(item(1))
    assert other.get_latest_item() is None
    assert one.get_latest_item().step == 1
    one.clear()
    assert list(one) == []


def test_an_item_is_json():
    assert item(3).to_dict()["actions"] == [{"tool": "a", "arguments": {}}]


def test_other_scripts_cost_more_than_ascii():
    assert estimate_tokens("abcdefgh") == 2
    assert estimate_tokens("发票") == 2
    assert estimate_tokens("") == 0


@given(st.text(max_size=3_000), st.integers(20, 400))
def test_clipped_text_is_about_within_its_budget(text, budget):
    shown = clip(text, budget)
    assert shown == text or estimate_tokens(shown) <= budget + 30


def test_clipping_keeps_beginning_and_end_and_says_what_is_missing():
    shown = clip("A" * 1_000 + "Z" * 1_000, 100)
    assert shown.startswith("AAA")
    assert shown.endswith("ZZZ")
    assert "characters left out" in shown
