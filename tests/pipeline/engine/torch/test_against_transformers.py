"""The embedded target against transformers' own load of the same GGUF file.

That load takes some 40 s of CPU time, so everything that needs it is in this file.
"""

import functools
from typing import NamedTuple

import gguf
import pytest
import torch
import transformers
from torch import Tensor

from pipeline.engine.torch.llama import KVCache, Llama
from pipeline.engine.torch.weights import dense_weights
from verify.base import StepInput

PROMPTS = (
    "What is the capital of France?",
    "Write a Python function that adds two numbers.",
    "Repeat this sentence: the old lighthouse stands on a narrow strip of rock.",
)
TEXTS = (
    "Hello, world!",
    "  leading and trailing  ",
    "It's 3.14159, isn't it? 1234567890 -42 1e-5",
    "line one\nline two\n\n\n\ttabbed\r\nwindows",
    "def f(x):\n    return {'a': [1, 2, x**2]}  # comment\n",
    "naïve café Ünïcödé Ærøskøbing",
    "日本語のテキスト 中文 한국어 العربية हिन्दी",
    "emoji 👩‍👩‍👧‍👦 🎉🎉 and \u200b zero width",
    "<|im_start|>user\nspecial tokens in text<|im_end|>\n<|endoftext|>",
    "<repo_name>x<file_sep>y <|im_start |> not special",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\x00\x01\x7f control",
    "https://example.org/a?b=c&d=%20#e",
    "don't can't we'll I'M THEY'RE",
    "",
)
CONVERSATIONS = (
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\n\nthere "}],
    [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "<b>&amp; {{ 2+2 }}?"},
    ],
)


class Reference(NamedTuple):
    """What transformers says.

    Attributes:
        model: Its LlamaForCausalLM, float32, on the CPU.
        tokenizer: Its tokenizer.
        tokens: Token ids of each of `PROMPTS`, chat template applied.
        logits: [T, V] float32 of each of `PROMPTS`.
    """

    model: torch.nn.Module
    tokenizer: object
    tokens: list[list[int]]
    logits: list[Tensor]


@pytest.fixture(scope="module")
def reference(gguf_file) -> Reference:
    options = {"gguf_file": gguf_file.name, "local_files_only": True}
    with pytest.MonkeyPatch.context() as patch:
        # It opens the file three times and builds one map of names per tensor: half of its time.
        for name in ("GGUFReader", "get_tensor_name_map"):
            patch.setattr(gguf, name, functools.cache(getattr(gguf, name)))
        tokenizer = transformers.AutoTokenizer.from_pretrained(gguf_file.parent, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            gguf_file.parent, dtype=torch.float32, **options
        )
    tokens = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False
        )
        for prompt in PROMPTS
    ]
    with torch.inference_mode():
        logits = [model(torch.tensor([ids])).logits[0] for ids in tokens]
    return Reference(model, tokenizer, tokens, logits)


@pytest.fixture(scope="module")
def checkpoint(embedded, cache):
    return embedded.checkpoint(cache)


def test_every_tensor_is_bit_equal(reference, checkpoint):
    theirs = reference.model.state_dict()
    for name in checkpoint.names:
        assert torch.equal(checkpoint.tensor(name), theirs[name]), name


def test_the_tokenizer_gives_the_same_ids_and_the_same_text_back(reference, checkpoint):
    ours = checkpoint.tokenizer()
    for text in TEXTS:
        ids = reference.tokenizer.encode(text, add_special_tokens=False)
        assert ours.encode(text) == tuple(ids), text
        assert ours.decode(ids) == reference.tokenizer.decode(ids), text


def test_every_single_byte_and_every_token_comes_back(reference, checkpoint):
    ours = checkpoint.tokenizer()
    vocabulary = reference.tokenizer.get_vocab()
    assert ours.vocabulary() == vocabulary
    for character in map(chr, range(0x250)):
        ids = reference.tokenizer.encode(character, add_special_tokens=False)
        assert ours.encode(character) == tuple(ids)


def test_the_chat_template_renders_and_encodes_the_same(reference, checkpoint):
    ours = checkpoint.tokenizer()
    for messages in CONVERSATIONS:
        options = {"add_generation_prompt": True}
        text = reference.tokenizer.apply_chat_template(messages, tokenize=False, **options)
        ids = reference.tokenizer.apply_chat_template(messages, return_dict=False, **options)
        assert ours.render(messages) == text
        assert ours.chat(messages) == tuple(ids)


def test_the_same_tokens_end_a_response(reference, checkpoint):
    assert checkpoint.tokenizer().stop_ids == {reference.tokenizer.eos_token_id}


def test_logits_of_the_whole_prompt_agree_within_float32_rounding(reference, checkpoint):
    """Both multiply the same float32 weights; sums run in another order.

    A dot product of 1536 terms is off by about sqrt(1536) * 2^-24 = 2e-6 of its size, and 30 layers
    of two blocks add 60 such errors in quadrature: 2e-5, which of logits up to 40 is 8e-4. The
    best logit of every row leads by more than that, so the greedy token must be the same.
    """
    shape = checkpoint.shape()
    cpu = torch.device("cpu")
    weights = dense_weights(shape, checkpoint.tensor, torch.float32, cpu)
    ours = checkpoint.tokenizer()
    for prompt, tokens, expected in zip(PROMPTS, reference.tokens, reference.logits, strict=True):
        assert ours.chat([{"role": "user", "content": prompt}]) == tuple(tokens)
        cache = KVCache(shape, len(tokens), torch.float32, cpu, shape.num_kv_heads)
        rows = torch.arange(len(tokens))
        mask = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
        out = Llama(shape, weights, cache).forward(StepInput(torch.tensor(tokens), rows, mask, 0))
        assert torch.equal(out.best, expected.argmax(-1))
        assert (out.logits - expected).abs().max() < 8e-4
