"""Draft vocabularies: every stored form is told apart, and only offsets are taken."""

import pytest
import torch
from safetensors.torch import save_file

from drafters.vocab.audit import accept_length_cap, audit
from drafters.vocab.load import StoredMap, checked, read_map, read_stored
from drafters.vocab.maps import Encoding, VocabMap, by_frequency, encoding_of, identity

V, D = 200, 40
# Ascending ids with neighbours among them, as a count of frequencies gives.
IDS = torch.cat([torch.arange(3, 23), torch.arange(60, 180, 6)])
MAP = VocabMap(IDS, V)


def permuted(seed=0) -> VocabMap:
    return VocabMap(IDS[torch.randperm(D, generator=torch.Generator().manual_seed(seed))], V)


def stored(d2t, mask=True) -> StoredMap:
    return StoredMap(d2t, MAP.t2d if mask else None, V)


def test_offsets_and_mask_are_the_published_form():
    small = VocabMap(torch.tensor([2, 3, 7]), 10)
    assert small.d2t.tolist() == [2, 2, 5]
    assert small.t2d.nonzero().flatten().tolist() == [2, 3, 7]
    assert small.slots().tolist() == [-1, -1, 0, 1, -1, -1, -1, 2, -1, -1]


@pytest.mark.parametrize("mask", [True, False])
def test_each_stored_form_is_told_apart(mask):
    t2d = MAP.t2d if mask else None
    assert encoding_of(MAP.d2t, V, t2d) is Encoding.OFFSET
    assert encoding_of(IDS, V, t2d) is Encoding.ABSOLUTE
    assert encoding_of(torch.arange(D), V, t2d) is Encoding.ARANGE
    assert encoding_of(permuted().d2t, V, t2d) is Encoding.OFFSET
    assert encoding_of(permuted().ids, V, t2d) is Encoding.ABSOLUTE
    assert encoding_of(torch.full((D,), -5), V, t2d) is Encoding.BROKEN


def test_the_first_tokens_as_a_draft_vocabulary_are_offsets_of_zero():
    assert encoding_of(torch.zeros(D, dtype=torch.int64), V) is Encoding.OFFSET
    assert encoding_of(identity(V).d2t, V, torch.ones(V, dtype=torch.bool)) is Encoding.OFFSET


@pytest.mark.parametrize(
    ("map_", "message"),
    [
        (stored(IDS), r"head: d2t holds token ids, engines read it as offsets: store d2t - arange"),
        (stored(torch.arange(D)), r"head: d2t is 0, 1, 2, …, which engines read as token 2i"),
        (stored(MAP.d2t - 9, mask=False), "head: d2t gives tokens out of range, or one token tw"),
        (
            StoredMap(MAP.d2t, by_frequency(torch.arange(V), D).t2d, V),
            r"head: t2d marks 40 tokens that are not the 40 of d2t",
        ),
    ],
)
def test_what_engines_would_misread_is_refused_with_the_fix(map_, message):
    with pytest.raises(ValueError, match=message):
        checked(map_, "head")


def test_a_map_cannot_repeat_or_leave_the_vocabulary():
    with pytest.raises(ValueError, match="1 of 3 slots repeat another slot's token"):
        VocabMap(torch.tensor([1, 4, 4]), V)
    with pytest.raises(ValueError, match="1 of 2 token ids are not in the target's vocabulary of"):
        VocabMap(torch.tensor([1, V]), V)


def test_the_most_frequent_tokens_stand_in_ascending_order():
    counts = torch.tensor([5, 0, 9, 5, 1])
    assert by_frequency(counts, 3).ids.tolist() == [0, 2, 3]
    assert by_frequency(counts, 2).ids.tolist() == [0, 2], "the lower id wins a tie"
    with pytest.raises(ValueError, match="draft_vocab_size=6: must be 1 to 5"):
        by_frequency(counts, 6)


def test_a_map_survives_a_file(tmp_path):
    save_file({"d2t": MAP.d2t, "t2d": MAP.t2d}, tmp_path / "map.safetensors")
    assert read_map(tmp_path / "map.safetensors").same_as(MAP)


def test_files_without_a_map_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no head's folder and no safetensors file"):
        read_stored(tmp_path / "none")
    save_file({"d2t": MAP.d2t}, tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match=r"neither t2d nor a config\.json says how large"):
        read_stored(tmp_path / "bare.safetensors")
    (tmp_path / "config.json").write_text("[200]")
    with pytest.raises(ValueError, match=r"config\.json is not a JSON object"):
        read_stored(tmp_path / "bare.safetensors")
    save_file({"fc.weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="tensor d2t is missing"):
        read_stored(tmp_path / "other.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"x" * 9)
    with pytest.raises(ValueError, match="is damaged"):
        read_stored(tmp_path / "cut.safetensors")


def test_an_audit_of_a_map_with_itself_finds_no_difference():
    found = audit(stored(MAP.d2t), stored(MAP.d2t))
    assert (found.same_slot, found.shared) == (D, D)
    assert found.coverage_same_slot == found.coverage_shared == pytest.approx(D / V)


def test_an_audit_names_the_encoding_and_what_engines_read():
    found = audit(stored(IDS), stored(torch.arange(D)))
    assert found.a.encoding is Encoding.ABSOLUTE
    assert found.a.outside == int((IDS + torch.arange(D) >= V).sum()) > 0
    assert found.b.encoding is Encoding.ARANGE
    assert found.b.repeated == 0


def test_a_permuted_map_shares_all_tokens_and_few_slots():
    other = permuted()
    found = audit(stored(MAP.d2t), stored(other.d2t))
    assert found.shared == D
    assert found.same_slot == int((other.ids == IDS).sum()) < D // 4


def test_four_fifths_in_common_are_few_in_the_same_slot():
    """The story's case: sorted ids of which one fifth differ, so nearly all slots are shifted."""
    kept = torch.cat([torch.tensor([0, 1]), IDS[:32], torch.tensor([30, 32, 34, 36, 38, 40])])
    other = VocabMap(kept.sort().values, V)
    found = audit(stored(MAP.d2t), StoredMap(other.d2t, other.t2d, V))
    assert found.shared == 32
    assert found.same_slot == 0


def test_shares_are_weighted_by_what_the_target_emits():
    counts = torch.zeros(V)
    counts[3], counts[4], counts[199] = 6, 3, 1
    swapped = IDS.clone()
    swapped[[1, 2]] = IDS[[2, 1]]
    found = audit(stored(MAP.d2t), stored(VocabMap(swapped, V).d2t), counts)
    assert found.weighted
    assert found.a.coverage == pytest.approx(0.9)
    assert found.coverage_same_slot == pytest.approx(0.6), "token 4 changed its slot"
    assert found.coverage_shared == pytest.approx(0.9)
    assert accept_length_cap(0.9, 3) == pytest.approx(1 + 0.9 + 0.81 + 0.729)


def test_maps_of_different_targets_are_not_compared():
    with pytest.raises(ValueError, match="the maps are for targets of 200 and 300 tokens"):
        audit(stored(MAP.d2t), StoredMap(MAP.d2t, None, 300))
