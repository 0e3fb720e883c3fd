"""Make a tokenizer.json for Kimi-K2.5, which ships its tokenizer as code, and check that it agrees.

    python -m experiments.kimi_slice.kimi_tokenizer /models/Kimi-K2.5 /models/kimi-tokenizer

Run it where SGLang is installed (transformers and tiktoken come with it). It runs the checkpoint's
own code once, to read its pattern and special tokens and to compare; nothing else here does.
Then: target.tokenizer_source=/models/kimi-tokenizer
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

SMALL = ("tokenizer_config.json", "generation_config.json", "config.json", "chat_template.jinja")
TEXTS = (
    "Hello, world! It's 12345 o'clock;  two spaces,\ttab\r\n\r\nnew lines.",
    "def f(x):\n    return {'a': [x ** 2 for _ in range(10)]}  # comment\n",
    "你好，世界。漢字とかなカナ, 한국어, русский, عربى, ελληνικά, naïve café",
    "$\\int_0^1 x^2\\,dx = \\frac{1}{3}$ 🙂👩‍👩‍👧 ``` <|not special|> THEY'LL don't",
    " \n \n\n   trailing   ",
)


def main(model: Path, folder: Path) -> None:
    """Convert, compare, and write the folder.

    Raises:
        SystemExit: The two disagree on a text; nothing is written.
    """
    from transformers.convert_slow_tokenizer import TikTokenConverter
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    own: Any = get_class_from_dynamic_module("tokenization_kimi.TikTokenTokenizer", str(model))
    slow = own.from_pretrained(str(model))
    specials = sorted(slow.special_tokens, key=slow.special_tokens.get)
    fast = TikTokenConverter(
        vocab_file=str(model / "tiktoken.model"),
        pattern=slow.pat_str,
        extra_special_tokens=specials,
    ).converted()
    for name in specials:
        if fast.token_to_id(name) != slow.special_tokens[name]:
            raise SystemExit(f"{name} is {fast.token_to_id(name)}, not {slow.special_tokens[name]}")
    marked = [f"{specials[0]}user{specials[1]}{text}{specials[2]}" for text in TEXTS]
    for text in (*TEXTS, *marked):
        ours = fast.encode(text, add_special_tokens=False).ids
        theirs = list(slow.encode(text))
        if ours != theirs:
            raise SystemExit(f"the tokenizers disagree on {text!r}: {ours} and {theirs}")
    folder.mkdir(parents=True, exist_ok=True)
    for name in SMALL:
        if (model / name).is_file():
            shutil.copy(model / name, folder)
    fast.save(str(folder / "tokenizer.json"))
    sys.stdout.write(
        f"equal on {len(TEXTS) + len(marked)} texts; target.tokenizer_source={folder}\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
