"""Differences between two texts, and whose they are."""

from __future__ import annotations

from hypothesis import given, strategies as st

from autofast.edit.hunks import Change, changes, lines_of, owners

TEXTS = st.lists(st.sampled_from("abcd\n"), max_size=12)


@given(TEXTS, TEXTS)
def test_changes_lead_from_one_text_to_the_other(old: list[str], new: list[str]) -> None:
    rebuilt: list[str] = []
    here = 0
    found = changes(old, new)
    for change in found:
        rebuilt += old[here : change.old[0]] + new[slice(*change.new)]
        here = change.old[1]
    assert rebuilt + old[here:] == new
    for one, next_one in zip(found, found[1:], strict=False):
        assert one.old[1] < next_one.old[0] and one.new[1] < next_one.new[0]


def test_lines_that_occur_once_are_matched_first() -> None:
    old = ["for a:", "step", "step", "", "for b:", "step", "step"]
    new = ["if c:", "for a:", "step", "", "for b:", "step", "step", "", "more"]
    assert changes(old, new) == [
        Change((0, 0), (0, 1)),
        Change((2, 3), (3, 3)),
        Change((7, 7), (7, 9)),
    ]


def test_a_last_line_without_an_end_is_another_line() -> None:
    assert lines_of("a\nb") == ["a\n", "b"]
    assert lines_of("a\n\n") == ["a\n", "\n"]
    assert lines_of("a\x0cb\x85\n") == ["a\x0cb\x85\n"]
    assert lines_of("") == []


def test_an_insertion_between_equal_lines_is_seen_where_the_hunk_is() -> None:
    old = ["a", "", "b", "", "c"]
    new = ["a", "", "new", "", "b", "", "c"]
    found = [Change((1, 1), (1, 3))]  # the same insertion as at 2, or with the other blank line
    assert owners(new, found, {"rule": old}) == [{"rule"}]


def test_a_removal_belongs_to_the_rule_without_which_the_line_is_there() -> None:
    old, new = ["a", "b", "c", "d", "e"], ["a", "c", "e"]
    found = changes(old, new)
    assert owners(new, found, {"one": ["a", "b", "c", "e"], "two": ["a", "c", "d", "e"]}) == [
        {"one"},
        {"two"},
    ]
