"""What is a published head of another target worth: as it is, and trained further in three ways?

`python -m experiments.k2_transfer FOLDER` makes the data, trains the stand-in for the published
head on stories alone, trains it further on the target's own answers with its map overwritten, kept
and remapped (each as a new head is trained, at a tenth of the learning rate, as a fine-tune usually
has, on a tenth of the answers, and not at all), and writes the table. Started again it goes on
where it was. Further settings may follow: those of the data begin with `data:`, all others are of
the trainings.
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.data_scaling.trainings import Overrides, data, head, heading, row, run

CLASSES = ("chat", "code", "math", "copy")
STORIES, ANSWERS, KEPT_BACK = 20_000, 37_000, 256
VARIANTS = {
    "": [],
    "gentle": ["course.learning_rate=1e-4"],
    "few": [f"samples={ANSWERS // 10}"],
    "untrained": [f"samples={ANSWERS // 10}", "course.learning_rate=0"],
}
SHAPE = "new.draft_vocab_size=4096"


def main(folder: Path, overrides: Overrides) -> None:
    """Run all arms and write `k2_transfer.txt`.

    Args:
        folder: Where data and heads go.
        overrides: More settings, of the data and of every training.
    """
    tales = ["prompts=stories", *overrides.data]
    stories = data(folder / "data_stories", STORIES + KEPT_BACK, tales)
    answers = data(folder / "data_answers", ANSWERS + KEPT_BACK, overrides.data)
    learn = [f"data={answers}", f"samples={ANSWERS}"]
    common = [SHAPE, f"kept_back={KEPT_BACK}", *overrides.train]
    standin = folder / "stand_in"
    cards = {
        "as published (stand-in)": head(
            standin, [f"data={stories}", f"samples={STORIES}", *common]
        ),
        "from nothing": head(folder / "scratch", [*learn, *common]),
    }
    start = [*common, *learn, f"start={standin / 'head'}"]
    for variant, settings in VARIANTS.items():
        for arm in ("overwrite", "keep", "remap"):
            name = "_".join(filter(None, [arm, variant]))
            label = ", ".join([f"fine-tuned, map={arm}", *settings])
            cards[label] = head(folder / name, [*start, f"map={arm}", *settings])
    maps = [str(standin / "head"), str(folder / "remap" / "head")]
    lines = [heading("head", CLASSES)]
    lines += [row(name, card, CLASSES) for name, card in cards.items()]
    audit = run("drafters.vocab", ["audit", *maps, "--data", str(answers)])
    text = "\n".join(lines) + "\n\n" + audit
    (folder / "k2_transfer.txt").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("usage: python -m experiments.k2_transfer FOLDER [SETTING …]")
    main(Path(sys.argv[1]), Overrides.of(sys.argv[2:]))
