"""Making data: resumable, its own target's, and apart from what is measured."""

import json
from dataclasses import dataclass

import pytest
import torch

from drafters.eagle3.data.__main__ import DataRun
from drafters.eagle3.data.corpus import MANIFEST, Corpus, Sample, answer_counts
from drafters.eagle3.data.generate import Writing
from drafters.eagle3.data.prompts import Decontaminator, FromWorkload, Maker, SelfPrompted, Template
from drafters.eagle3.train.target import Target
from tests.drafters.eagle3.tiny import CHECKPOINT, CPU, SHAPE

BEFORE, AFTER = (90, 91), (92, 93)
FACTS = {"target": "tiny", "target_digest": CHECKPOINT.digest}


class Words:
    """A tokenizer of numbers: '5 17' is the tokens 5 and 17."""

    stop_ids = frozenset(range(80, 90))

    def encode(self, text):
        return tuple(int(word) for word in text.split())

    def render(self, messages):
        return f"90 91 {messages[-1]['content']} 92 93"


@dataclass(frozen=True)
class Listed:
    """Stands for a data set."""

    prompts: tuple

    def load(self, target, cache):
        @dataclass
        class Prompt:
            tokens: tuple

        return [Prompt((*BEFORE, *text, *AFTER)) for text in self.prompts]


@pytest.fixture(scope="module")
def maker():
    target = Target(CHECKPOINT, CPU, torch.float32)
    return Maker(target, Words(), Template.of(Words()), None, None)


def data_run(source=None, samples=12, **settings):
    source = source or SelfPrompted(openers=("", "5 6"), max_tokens=40, batch=8)
    settings = {"shard": 16, "shortest": 4, "seed": 0} | settings
    return DataRun(source, Writing(24, 0.0, 8), samples, **settings)


def texts(corpus):
    return [(s.tokens.tolist(), s.answer) for s in corpus.samples()]


def test_the_template_is_read_off_and_taken_off():
    template = Template.of(Words())
    assert (template.before, template.after) == (BEFORE, AFTER)
    assert template.wrap((1, 2)) == (90, 91, 1, 2, 92, 93)
    assert template.unwrap((90, 91, 1, 2, 92, 93)) == (1, 2)
    assert template.unwrap((90, 7, 8, 93)) == (7, 8)
    assert template.unwrap((90, 91)) == ()


def test_prompts_that_are_measured_or_known_are_not_admitted():
    template = Template.of(Words())
    measured = [template.wrap(tuple(range(30))), template.wrap((1, 2, 3))]
    apart = Decontaminator(template, measured)
    assert not apart.admit(template.wrap((50, 51, *range(12, 22), 52))), "ten tokens in a row"
    assert apart.admit(template.wrap((50, 51, *range(12, 21), 52))), "nine"
    assert not apart.admit(template.wrap((1, 2, 3)))
    assert not apart.admit(template.wrap((50, 51, *range(12, 21), 52)))
    assert (apart.overlapping, apart.repeated) == (2, 1)


@torch.inference_mode()
def test_self_prompted_data_is_the_targets_own_answer_to_a_whole_prompt(maker, tmp_path):
    corpus = Corpus.begin(tmp_path, FACTS)
    data_run().make(corpus, maker, ())
    assert corpus.num_samples >= 12
    prompts = set()
    for tokens, answer in texts(corpus):
        assert tuple(tokens[:2]) == BEFORE
        assert tuple(tokens[answer - 2 : answer]) == AFTER
        assert not Words.stop_ids & set(tokens[:answer][2:-2])
        assert len(tokens) - answer >= 4
        prompts.add(tuple(tokens[:answer]))
    assert len(prompts) == corpus.num_samples


@torch.inference_mode()
def test_a_stopped_run_goes_on_and_ends_with_the_same_data(maker, tmp_path):
    whole = Corpus.begin(tmp_path / "whole", FACTS)
    data_run(samples=30).make(whole, maker, ())
    data_run(samples=5).make(Corpus.begin(tmp_path / "parts", FACTS), maker, ())
    resumed = Corpus.begin(tmp_path / "parts", FACTS)
    assert 0 < resumed.num_samples < whole.num_samples
    data_run(samples=30).make(resumed, maker, ())
    assert texts(Corpus.open(tmp_path / "parts")) == texts(whole)


@torch.inference_mode()
def test_a_data_set_is_used_up_once(maker, tmp_path):
    source = FromWorkload(Listed(tuple((n, n + 1, n + 2) for n in range(20)) * 2))
    corpus = Corpus.begin(tmp_path, FACTS)
    with pytest.raises(ValueError, match="samples=100: the source of prompts has no more after"):
        data_run(source, samples=100, shortest=1).make(corpus, maker, [(90, 91, 3, 4, 5, 92, 93)])
    assert corpus.num_samples == 19
    assert corpus.left_out["measured"] == 2


def corpus_of(folder, count=4):
    corpus = Corpus.begin(folder, FACTS)
    samples = [Sample(torch.arange(6 + n, dtype=torch.int32), 3) for n in range(count)]
    corpus.add(samples, 1, {})
    return corpus


def test_counts_are_of_answers_alone(tmp_path):
    counts = answer_counts(corpus_of(tmp_path).samples(), SHAPE.vocab_size)
    assert counts[:10].tolist() == [0, 0, 0, 4, 4, 4, 3, 2, 1, 0]


def test_another_targets_data_is_refused(tmp_path):
    corpus_of(tmp_path)
    with pytest.raises(ValueError, match="a head learns from its own target only"):
        Corpus.open(tmp_path, "f" * 64)
    with pytest.raises(ValueError, match=r"made with target=tiny, not other; choose another fo"):
        Corpus.begin(tmp_path, FACTS | {"target": "other"})


def test_a_damaged_or_missing_shard_is_named(tmp_path):
    corpus_of(tmp_path)
    shard = next(tmp_path.glob("shard-*"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ValueError, match=r"shard-00000\.safetensors is damaged: its hash"):
        Corpus.open(tmp_path)
    shard.unlink()
    with pytest.raises(ValueError, match=r"shard-00000\.safetensors is missing"):
        Corpus.open(tmp_path)
    (tmp_path / MANIFEST).write_text(json.dumps({"facts": {}}))
    with pytest.raises(ValueError, match=r"manifest\.json is damaged"):
        Corpus.open(tmp_path)


def test_more_samples_than_there_are_name_the_command(tmp_path):
    with pytest.raises(ValueError, match=r"data\.samples=9: .* holds 4; make more with"):
        corpus_of(tmp_path).samples(9)
    assert len(Corpus.open(tmp_path).samples(3)) == 3
    with pytest.raises(ValueError, match=r"has no manifest\.json; make data with"):
        Corpus.open(tmp_path / "none")
