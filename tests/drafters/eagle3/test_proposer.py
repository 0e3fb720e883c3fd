"""A head at work: chains, trees and sampling, eager and captured, against one reference."""

import functools

import pytest
import torch

from drafters.base import Context, TargetInfo
from drafters.eagle3.drafter import Eagle3
from drafters.eagle3.model import finish, fuse, project, rotary_table, score
from drafters.eagle3.native import NativeRunner
from drafters.eagle3.proposer import DraftTree, Eagle3Proposer
from drafters.eagle3.runner import EagerRunner, GraphRunner, StaticChain
from tests.drafters.eagle3.heads import SHAPE, random_head
from verify.base import TargetShape
from verify.native import build

CAPACITY = 128
TARGET_SHAPE = TargetShape(
    4, SHAPE.hidden_size, 64, 4, 2, 8, SHAPE.vocab_size, 1e4, 1e-5, 512, False
)
HEAD = random_head()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("native")


def drawn(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


EMBEDDING = drawn(SHAPE.vocab_size, SHAPE.hidden_size, seed=7)
TOKENS = torch.randint(0, SHAPE.vocab_size, (60,), generator=torch.Generator().manual_seed(1))
FEATURES = drawn(60, 3 * SHAPE.hidden_size, seed=2)


def runner_of(kind, cache, threads=1):
    if kind == "eager":
        return EagerRunner(HEAD, EMBEDDING, CAPACITY, torch.float32)
    if build.find_compiler() is None:
        pytest.skip("no C compiler on this machine")
    compiles = functools.partial(build.load_source, cache)
    cpu = torch.device("cpu")
    info = TargetInfo(
        TARGET_SHAPE, EMBEDDING, cpu, torch.float32, CAPACITY, threads, True, compiles
    )
    return NativeRunner(HEAD, info, CAPACITY)


@pytest.fixture(params=["eager", "native", "native on 2 threads"])
def runner(request, cache):
    return runner_of(request.param.split()[0], cache, 2 if "2" in request.param else 1)


def reference(tokens, features, drafts=()):
    """Logits of the last row: the whole sequence at once, no cache, attention written out."""
    count = len(features)
    hidden = fuse(HEAD.tensors, features)
    embeds = EMBEDDING[torch.tensor([*tokens, *drafts])]
    rotary = tuple(part[: len(embeds)] for part in rotary_table(CAPACITY, SHAPE))
    for last in range(count, len(embeds) + 1):
        rows = slice(0, last)
        query, key, value = project(
            HEAD.tensors, SHAPE, embeds[rows], hidden, tuple(part[rows] for part in rotary)
        )
        key, value = (t.repeat_interleave(2, dim=1) for t in (key, value))
        weights = torch.einsum("he,she->hs", query[-1], key) * SHAPE.head_dim**-0.5
        seen = torch.einsum("hs,she->he", weights.softmax(-1), value).flatten()
        out = finish(HEAD.tensors, SHAPE, seen[None], hidden[-1:])
        hidden = torch.cat([hidden, out])
    return score(HEAD.tensors, SHAPE, out)[0]


def proposer(runner, **settings) -> Eagle3Proposer:
    """A proposer whose request has begun with the first token as its prompt."""
    drafter = Eagle3("e", "t", {"t": "x"}, **settings)
    shape = DraftTree(drafter.num_draft_tokens, drafter.breadth, drafter.depth)
    made = Eagle3Proposer(shape, runner, HEAD.vocab)
    made.begin(context(2, 1))
    return made


def context(length, count, **more):
    """The request after `length` tokens, of which the last `count` before the root are new."""
    rows = slice(length - 1 - count, length - 1)
    return Context(TOKENS[:length].tolist(), FEATURES[rows], **more)


def best_chain(length, size):
    drafts = []
    for _ in range(size):
        logits = reference(TOKENS[1:length].tolist(), FEATURES[: length - 1], drafts)
        drafts.append(int(HEAD.vocab.ids[logits.argmax()]))
    return tuple(drafts)


def test_a_chain_follows_the_best_slot_of_the_whole_sequence(runner):
    draft = proposer(runner, num_draft_tokens=4).propose(context(20, 19))
    assert draft.is_chain
    assert draft.tokens == best_chain(20, 4)


def test_rows_of_a_rejected_draft_leave_no_trace(runner):
    drafting = proposer(runner, num_draft_tokens=4)
    lengths = [5, 6, 9, 14, 15, 20]
    for before, length in zip([1, *lengths], lengths, strict=False):
        draft = drafting.propose(context(length, length - before))
    assert draft.tokens == best_chain(20, 4)


def test_a_long_prompt_is_read_in_chunks(runner):
    assert proposer(runner).propose(context(60, 59)).tokens == best_chain(60, 3)


def test_a_new_request_starts_from_nothing(runner):
    drafting = proposer(runner)
    drafting.propose(context(30, 29))
    drafting.begin(context(20, 19))
    assert drafting.propose(context(20, 1)).tokens == best_chain(20, 3)


def test_extend_and_step_score_rows_as_the_reference_does(runner):
    scored = runner.extend(TOKENS[1:20].tolist(), FEATURES[:19], 0)
    expected = reference(TOKENS[1:20].tolist(), FEATURES[:19])
    torch.testing.assert_close(scored.logits[0], expected, rtol=1e-4, atol=1e-4)
    first, second = 3, 50
    hidden = scored.hidden.expand(2, -1)
    mask = torch.eye(2, dtype=torch.bool)
    scored = runner.step([first, second], hidden, 19, mask)
    for row, token in enumerate((first, second)):
        expected = reference(TOKENS[1:20].tolist(), FEATURES[:19], [token])
        torch.testing.assert_close(scored.logits[row], expected, rtol=1e-4, atol=1e-4)


def test_a_tree_holds_the_most_probable_paths(runner):
    """Breadth is the whole vocabulary, so that no path is missed: the best 9 of all to depth 3."""
    size, depth = SHAPE.draft_vocab_size, 3
    draft = proposer(runner, num_draft_tokens=9, breadth=8, depth=depth).propose(context(20, 19))
    assert len(set(zip(draft.parents, draft.tokens, strict=True))) == 9
    paths, level = [], [((), 0.0)]
    for _ in range(depth):
        grown = []
        for path, total in level:
            logits = reference(TOKENS[1:20].tolist(), FEATURES[:19], path).log_softmax(-1)
            tops = logits.topk(min(8, size))
            grown += [
                ((*path, int(HEAD.vocab.ids[slot])), total + float(value))
                for value, slot in zip(tops.values, tops.indices, strict=True)
            ]
        paths += grown
        level = sorted(grown, key=lambda pair: -pair[1])[:8]
    expected = {path for path, _ in sorted(paths, key=lambda pair: -pair[1])[:9]}
    found = set()
    for node in range(9):
        path, at = (), node
        while at != -1:
            path, at = (draft.tokens[at], *path), draft.parents[at]
        found.add(path)
    assert found == expected


def test_a_sampled_chain_carries_the_distributions_that_it_was_drawn_from(runner):
    sampler = torch.Generator().manual_seed(5)
    asked = context(20, 19, temperature=0.7, sampler=sampler)
    draft = proposer(runner, num_draft_tokens=3).propose(asked)
    assert draft.probs.shape == (3, SHAPE.vocab_size)
    torch.testing.assert_close(draft.probs.sum(-1), torch.ones(3))
    for place in range(3):
        logits = reference(TOKENS[1:20].tolist(), FEATURES[:19], draft.tokens[:place])
        probs = (logits / 0.7).softmax(-1)
        torch.testing.assert_close(draft.probs[place, HEAD.vocab.ids], probs, rtol=1e-3, atol=1e-5)
        assert draft.probs[place, draft.tokens[place]] > 0


def test_sampling_moves_with_the_engines_generator(runner):
    drafts = []
    for seed in (1, 1, 2, 3, 4):
        sampler = torch.Generator().manual_seed(seed)
        asked = context(20, 19, temperature=3.0, sampler=sampler)
        drafts.append(proposer(runner).propose(asked).tokens)
    assert drafts[0] == drafts[1]
    assert len(set(drafts)) > 1


class Replayed(StaticChain):
    """The captured chain without the capture: what the graph replays, run as it stands."""

    def chain(self, tokens, features, start, length):
        if len(tokens) > len(self.tokens):
            return super().chain(tokens, features, start, length)
        self.load(tokens, features, start)
        self.run()
        return self.slots.tolist()


def drafts_of(runner):
    drafting = proposer(runner, num_draft_tokens=4)
    steps = [(1, 12), (12, 13), (13, 18), (18, 20)]
    return [drafting.propose(context(length, length - before)).tokens for before, length in steps]


def test_the_static_chain_drafts_what_the_eager_one_does(cache):
    info = TargetInfo(
        TARGET_SHAPE, EMBEDDING, torch.device("cpu"), torch.float32, CAPACITY, 1, True
    )
    assert drafts_of(Replayed(HEAD, info, CAPACITY, 4)) == drafts_of(runner_of("eager", cache))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_the_captured_chain_on_a_gpu_drafts_what_the_eager_one_does():
    gpu = torch.device("cuda")
    embedding = EMBEDDING.to(gpu)
    info = TargetInfo(TARGET_SHAPE, embedding, gpu, torch.float32, CAPACITY, 1, True)
    eager = EagerRunner(HEAD, embedding, CAPACITY, torch.float32)
    assert drafts_of(GraphRunner(HEAD, info, CAPACITY, 4)) == drafts_of(eager)


def test_a_draft_past_the_cache_is_refused(cache):
    with pytest.raises(ValueError, match="the drafter's cache has 128 slots"):
        runner_of("native", cache).chain([1], FEATURES[:1], CAPACITY - 1, 3)
