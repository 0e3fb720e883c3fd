"""Training on a tiny target: a head learns, drafts as it was marked, and survives a kill."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from drafters.base import TargetInfo
from drafters.eagle3.checkpoint import load_head, save_head
from drafters.eagle3.data.corpus import Sample, answer_counts
from drafters.eagle3.data.generate import Writing, write
from drafters.eagle3.drafter import Eagle3
from drafters.eagle3.shape import capture_layers
from drafters.eagle3.train.batches import Teacher, batches, steps
from drafters.eagle3.train.initial_head import NewHead, fresh, warm
from drafters.eagle3.train.loop import Course, examine, train
from drafters.eagle3.train.target import Target
from drafters.eagle3.train.ttt import DraftHead, channel_scale
from drafters.vocab.maps import by_frequency
from pipeline.cell.cell import Sampling
from pipeline.engine.torch.decode import Decoder
from pipeline.engine.torch.llama import KVCache, Llama
from pipeline.engine.torch.prefill import eager_prefill
from pipeline.engine.torch.weights import dense_weights
from pipeline.workload.prompts import Prompt
from tests.drafters.eagle3.tiny import CHECKPOINT, CPU, SHAPE
from verify.extend import EagerStep

MOST = 40
NEW = NewHead(draft_vocab_size=64, intermediate_size=64)
LAYERS = capture_layers((), SHAPE.num_layers)
COURSE = Course(
    epochs=30, batch=8, learning_rate=4e-3, warm_up=0.05, floor=0.1, weight_decay=0.0, clip=1.0,
    steps=3, most_tokens=MOST, seed=0, report_every=10, save_every=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def target():
    return Target(CHECKPOINT, CPU, torch.float32)


@pytest.fixture(scope="module")
def samples(target):
    generator = torch.Generator().manual_seed(0)
    prompts = [
        tuple(torch.randint(0, SHAPE.vocab_size, (6,), generator=generator).tolist())
        for _ in range(32)
    ]
    answers = write(target, prompts, Writing(26, 0.0, 32), frozenset(), 0)
    return [
        Sample(torch.tensor([*prompt, *answer], dtype=torch.int32), len(prompt))
        for prompt, answer in zip(prompts, answers, strict=True)
    ]


@pytest.fixture(scope="module")
def start(target, samples):
    """An untrained head, its map, and the scale of its features."""
    counts = answer_counts(samples, SHAPE.vocab_size)
    tokens = torch.stack([sample.tokens.long() for sample in samples])
    scale = channel_scale(target.states(tokens, LAYERS).features.flatten(0, 1))
    return fresh(NEW, target, counts, scale, seed=0), scale


def learner_of(start) -> DraftHead:
    head, scale = start
    return DraftHead(head, scale, MOST, COURSE.steps)


def teacher_of(target, head) -> Teacher:
    return Teacher(target, head.vocab, LAYERS, MOST)


def run(target, start, samples, folder, course=COURSE, reports=None):
    learner = learner_of(start)
    reports = [] if reports is None else reports
    teacher = teacher_of(target, start[0])
    train(course, learner, teacher, samples, folder, {}, lambda *report: reports.append(report))
    return learner


@pytest.fixture(scope="module")
def trained(target, start, samples, tmp_path_factory):
    reports = []
    learner = run(target, start, samples, tmp_path_factory.mktemp("run"), reports=reports)
    return learner, reports


def test_the_published_form_of_a_head_under_training_is_the_head(start):
    head, _ = start
    for name, tensor in learner_of(start).head().tensors.items():
        torch.testing.assert_close(tensor, head.tensors[name])


def test_the_loss_falls_and_the_accept_length_rises(trained):
    (_, first), *_, (last_step, last) = trained[1]
    assert last_step == 120
    for position in (1, 2, 3):
        assert last[f"loss_{position}"] < 0.7 * first[f"loss_{position}"]
    assert last["accept_length_offline"] > first["accept_length_offline"] + 0.5


def engine(head, folder, num_draft_tokens=3):
    """The engine's own decoder with a head in published form, in float32."""
    save_head(head, folder, torch.float32)
    weights = dense_weights(SHAPE, CHECKPOINT.tensor, torch.float32, CPU)
    cache = KVCache(SHAPE, 128, torch.float32, CPU, SHAPE.num_kv_heads)
    model = Llama(SHAPE, weights, cache, LAYERS)
    info = TargetInfo(SHAPE, weights.embedding, CPU, torch.float32, 128, 1, False)
    drafter = Eagle3("e", "t", {"t": str(folder)}, num_draft_tokens=num_draft_tokens)
    assert drafter.capture_layers(SHAPE.num_layers) == LAYERS
    proposer = drafter.start(info)
    sampling = Sampling(max_new_tokens=26)
    step = EagerStep(model)
    return Decoder(
        partial(eager_prefill, model.forward), step, proposer, cache, sampling, frozenset()
    )


@torch.inference_mode()
def accept_lengths(head, samples, folder):
    decoder, steps_, committed = engine(head, folder), 0, 0
    for number, sample in enumerate(samples):
        prompt = tuple(sample.tokens[: sample.answer].tolist())
        response = decoder.respond(Prompt(str(number), "chat", prompt), 0)
        assert response.tokens == tuple(sample.tokens[sample.answer :].tolist()), "lossless"
        steps_ += len(response.committed)
        committed += sum(response.committed)
    return committed / steps_


def test_in_the_decode_loop_a_trained_head_is_accepted_and_any_head_is_lossless(
    trained, start, samples, tmp_path
):
    untrained = accept_lengths(start[0], samples, tmp_path / "start")
    learnt = accept_lengths(trained[0].head(), samples, tmp_path / "end")
    assert learnt > untrained + 0.5


def test_the_first_draft_of_every_step_is_right_as_often_as_training_says(
    target, trained, samples, tmp_path
):
    """A chain of one: the loop meets every row, so that its rate is training's accuracy.

    The loop skips the row of an accepted token's successor, which is a sample of the same rows; the
    two may differ by chance: three standard errors of 800 rows are 0.05.
    """
    learner = trained[0]
    found = examine(learner, teacher_of(target, learner.head()), [samples])
    with torch.inference_mode():
        decoder = engine(learner.head(), tmp_path, num_draft_tokens=1)
        accepted = drafted = 0
        for number, sample in enumerate(samples):
            prompt = tuple(sample.tokens[: sample.answer].tolist())
            response = decoder.respond(Prompt(str(number), "chat", prompt), 0)
            accepted += sum(count - 1 for count in response.committed)
            drafted += len(response.committed)
    assert accepted / drafted == pytest.approx(found["accuracy_1"], abs=0.05)


def test_a_killed_run_ends_with_the_same_weights(target, start, samples, tmp_path):
    short = replace(COURSE, epochs=5)  # 20 steps, a state every 5

    class Killed(Exception):
        pass

    def kill(step, metrics):
        raise Killed

    (tmp_path / "b").mkdir()
    whole = run(target, start, samples, tmp_path / "b", short)
    (tmp_path / "c").mkdir()
    learner = learner_of(start)
    course = replace(short, report_every=12)
    with pytest.raises(Killed):
        train(course, learner, teacher_of(target, start[0]), samples, tmp_path / "c", {}, kill)
    resumed = run(target, start, samples, tmp_path / "c", short)
    for name, part in whole.named_parameters():
        assert torch.equal(part, resumed.get_parameter(name)), name


def test_a_state_of_other_settings_is_refused(target, start, samples, tmp_path):
    run(target, start, samples, tmp_path, replace(COURSE, epochs=1))
    with pytest.raises(ValueError, match="is of a run with other settings or data"):
        train(COURSE, learner_of(start), teacher_of(target, start[0]), samples, tmp_path,
              {"seed": 1}, print)  # fmt: skip


def test_every_sample_comes_once_an_epoch_in_an_order_of_its_own(samples):
    first, second = batches(samples, 8, 0, 0), batches(samples, 8, 0, 1)
    seen = [id(sample) for batch in first for sample in batch]
    assert sorted(seen) == sorted(map(id, samples))
    assert [list(map(id, b)) for b in first] != [list(map(id, b)) for b in second]
    through = list(steps(samples, 8, 0, 2, 6))
    assert [list(map(id, b)) for b in through] == [
        list(map(id, b)) for b in (*first[2:], *second[:2])
    ]
    with pytest.raises(ValueError, match="batch=99: only 32 samples"):
        next(steps(samples, 99, 0, 0, 1))


def test_a_warm_start_keeps_or_moves_the_map_by_choice_and_never_silently(
    target, start, samples, tmp_path
):
    head, _ = start
    counts = answer_counts(samples, SHAPE.vocab_size)
    assert warm(head, target, counts, "agree", 64) is head
    other = counts.clone()
    other[head.vocab.ids[:10]] = 0
    with pytest.raises(ValueError, match=r"agree in \d+ of 64 slots; choose map=keep .* or map=r"):
        warm(head, target, other, "agree", 64)
    assert warm(head, target, other, "keep", 64) is head
    moved, spoilt = (warm(head, target, other, how, 64) for how in ("remap", "overwrite"))
    data = by_frequency(other, 64)
    assert moved.vocab.same_as(data)
    assert spoilt.vocab.same_as(data)
    rows = head.tensors["lm_head.weight"]
    assert torch.equal(spoilt.tensors["lm_head.weight"], rows)
    for slot, token in enumerate(data.ids.tolist()):
        old = int(head.vocab.slots()[token])
        if old >= 0:
            assert torch.equal(moved.tensors["lm_head.weight"][slot], rows[old])
    with pytest.raises(ValueError, match="map=both: one of agree, keep, remap, overwrite"):
        warm(head, target, other, "both", 64)


def test_a_head_survives_its_folder(start, tmp_path):
    head, _ = start
    save_head(head, tmp_path, torch.float32)
    again = load_head(tmp_path)
    assert again.shape == head.shape
    assert again.vocab.same_as(head.vocab)
    assert again.capture_ids == (1, 3, 4)
    assert all(torch.equal(again.tensors[name], part) for name, part in head.tensors.items())
