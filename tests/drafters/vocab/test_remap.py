"""Moving a head to another map: rows follow their tokens, and proposals follow the rows."""

from dataclasses import replace

import pytest
import torch

from drafters.eagle3.checkpoint import Head
from drafters.eagle3.runner import EagerRunner
from drafters.eagle3.shipped import shipped
from drafters.vocab.__main__ import main
from drafters.vocab.maps import VocabMap
from drafters.vocab.remap import overwrite, remap
from tests.drafters.eagle3.heads import SHAPE, random_head

HEAD = random_head()
FEATURES = torch.randn(12, 3 * SHAPE.hidden_size, generator=torch.Generator().manual_seed(1))
EMBEDDING = torch.randn(
    SHAPE.vocab_size, SHAPE.hidden_size, generator=torch.Generator().manual_seed(2)
)


def drafted(head: Head) -> tuple[list[int], torch.Tensor]:
    """A chain of 5 target tokens, and the scores of the first by target token."""
    runner = EagerRunner(head, EMBEDDING, 32, torch.float32)
    tokens = list(range(12))
    slots = runner.chain(tokens, FEATURES, 0, 5)
    scores = torch.full((SHAPE.vocab_size,), float("-inf"))
    scores[head.vocab.ids] = runner.extend(tokens, FEATURES, 0).logits[0]
    return [int(head.vocab.ids[slot]) for slot in slots], scores


def permuted() -> Head:
    """The same head with its slots in another order."""
    order = torch.randperm(SHAPE.draft_vocab_size, generator=torch.Generator().manual_seed(3))
    rows = HEAD.tensors["lm_head.weight"][order]
    vocab = VocabMap(HEAD.vocab.ids[order], SHAPE.vocab_size)
    return replace(HEAD, tensors={**HEAD.tensors, "lm_head.weight": rows}, vocab=vocab)


def test_remapping_a_permuted_head_gives_the_same_proposals_and_the_same_weights():
    moved, report = remap(permuted(), HEAD.vocab)
    assert (report.kept, report.new, report.dropped) == (SHAPE.draft_vocab_size, 0, 0)
    assert torch.equal(moved.tensors["lm_head.weight"], HEAD.tensors["lm_head.weight"])
    tokens, scores = drafted(moved)
    expected_tokens, expected = drafted(HEAD)
    assert tokens == expected_tokens
    assert torch.equal(scores, expected), "bit for bit"


def test_a_permuted_head_read_with_the_wrong_map_drafts_other_tokens():
    wrong = overwrite(permuted(), HEAD.vocab)
    assert drafted(wrong)[0] != drafted(HEAD)[0]
    assert drafted(permuted())[0] == drafted(HEAD)[0]


def test_a_move_to_another_vocabulary_keeps_the_scores_of_the_tokens_that_both_hold():
    absent = torch.tensor([t for t in range(96) if t not in set(HEAD.vocab.ids.tolist())])
    ids = torch.cat([HEAD.vocab.ids[8:], absent[:8]]).sort().values
    moved, report = remap(HEAD, VocabMap(ids, SHAPE.vocab_size))
    assert (report.kept, report.new, report.dropped) == (32, 8, 8)
    _, scores = drafted(moved)
    _, before = drafted(HEAD)
    torch.testing.assert_close(scores[HEAD.vocab.ids[8:]], before[HEAD.vocab.ids[8:]])
    assert drafted(moved)[0][0] not in absent.tolist(), "untrained tokens score the average"


def test_maps_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="map of a target with 97 tokens: the head's target has 9"):
        remap(HEAD, VocabMap(HEAD.vocab.ids, 97))
    with pytest.raises(ValueError, match="map of 39 slots on a head of 40"):
        overwrite(HEAD, VocabMap(HEAD.vocab.ids[1:], SHAPE.vocab_size))


def test_the_command_compares_heads_as_they_come_with_the_package(capsys):
    heads = [str(shipped("shipped:smollm2_stories"))] * 2
    assert main(["audit", *heads]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "same token in the same slot: 4096 of 4096"
