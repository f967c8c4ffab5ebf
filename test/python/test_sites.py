"""Completing traces along the data flow: parts without evidence of their own."""

from __future__ import annotations

from covan_mlir.lowering.sites import complete


def completed(evidence: list[set[int]], inputs: dict[int, list[int]]) -> list[set[int]]:
    return [set(parts) for parts in complete([frozenset(parts) for parts in evidence], inputs)]


def test_part_between_two_performed_parts_belongs_to_their_site() -> None:
    # 1 -> 2 -> 3 -> 4, where 2 and 3 left no location.
    assert completed([{1, 4}], {1: [], 2: [1], 3: [2], 4: [3]}) == [{1, 2, 3, 4}]


def test_part_between_two_sites_belongs_to_neither() -> None:
    assert completed([{1}, {3}], {1: [], 2: [1], 3: [2]}) == [{1}, {3}]


def test_part_at_the_edge_of_the_program_belongs_to_nobody() -> None:
    # 1 reads only an input or a weight; 4 is only returned.
    assert completed([{2, 3}], {1: [], 2: [1], 3: [2], 4: [3]}) == [{2, 3}]


def test_a_performed_part_is_not_given_to_its_neighbours() -> None:
    # 2 is performed elsewhere, between the parts of the first site.
    assert completed([{1, 3}, {2}], {1: [], 2: [1], 3: [2]}) == [{1, 3}, {2}]


def test_split_producer_and_consumer_share_what_lies_between() -> None:
    # Both sites perform 1 and 3: what lies between is done in both.
    assert completed([{1, 3}, {1, 3}], {1: [], 2: [1], 3: [2]}) == [{1, 2, 3}, {1, 2, 3}]
