"""A cell's files are read back as they were written, or refused in one line that helps."""

import json
from dataclasses import replace

import pytest

from pipeline.record.record import Damaged, Status, load_record, save_record, save_repetition
from pipeline.record.sweep_folder import create_sweep
from tests.pipeline.synthetic import make_plain, make_record


@pytest.fixture
def record():
    """A cell with two repetitions of two prompts."""
    responses = [make_plain("chat-0"), make_plain("chat-1", num_tokens=5)]
    return make_record("none", "extend", responses, responses, group_starts=("2026-12-01",))


@pytest.fixture
def folder(record, tmp_path):
    """The cell's folder."""
    save_record(record, tmp_path)
    for number, responses in enumerate(record.repetitions):
        save_repetition(responses, number, tmp_path)
        save_repetition(responses, number, tmp_path, "control")
    return tmp_path


def test_a_cell_comes_back_as_it_was_written(record, folder):
    assert load_record(folder) == replace(record, control=record.repetitions)


def test_a_failed_cell_without_proof_comes_back(record, tmp_path):
    failed = replace(record, proof=None, repetitions=()).ended(Status.FAILED, "no weights")
    save_record(failed, tmp_path)
    assert load_record(tmp_path) == failed


def test_a_record_of_before_the_renaming_still_loads(folder):
    path = folder / "record.json"
    plain = json.loads(path.read_text())
    plain["turns"] = plain.pop("group_starts")
    for name in ("control_id", "log_tail", "command", "settings"):
        del plain[name]
    del plain["proof"]["running_requests"]
    path.write_text(json.dumps(plain))
    loaded = load_record(folder)
    assert loaded.group_starts == ("2026-12-01",)
    assert loaded.settings == {}
    assert loaded.proof.running_requests == 0


def refusal(folder):
    """Return the message of a folder that cannot be read."""
    with pytest.raises(Damaged) as caught:
        load_record(folder)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def changed(text, **fields):
    """Return a JSON object with other fields; None takes one away."""
    plain = json.loads(text) | fields
    return json.dumps({name: value for name, value in plain.items() if value is not None})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "", "is empty"),
        (lambda text: "no json", "Invalid JSON"),
        (lambda text: text[:100], "Invalid JSON: EOF"),
        (lambda text: "[1]", "Input should be an object"),
        (lambda text: changed(text, label=None), "label is missing"),
        (lambda text: changed(text, width="4"), "width: Input should be a valid integer (it is '4"),
        (lambda text: changed(text, status="done"), "status: Input should be 'ok', 'failed'"),
        (lambda text: changed(text, params={"batch": 8}), "params.batch: Input should be a valid"),
        (lambda text: changed(text, proof={}), "proof.capture is missing"),
        (
            lambda text: changed(text, seconds={"start": float("nan")}),
            "seconds.start: Input should be a finite number (it is nan)",
        ),
    ],
)
def test_a_damaged_record_names_the_file_the_field_and_the_way_out(folder, damage, said):
    path = folder / "record.json"
    path.write_text(damage(path.read_text()))
    message = refusal(folder)
    assert message.startswith(f"{path}: {said}")
    assert message.endswith(
        f"; delete {folder} and give the sweep's command again with resume=true"
    )


@pytest.mark.parametrize("kind", ["repetition", "control"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda line: line[:50], "Invalid JSON: EOF"),
        (lambda line: "", "is empty"),
        (lambda line: "3", "Input should be an object"),
        (lambda line: changed(line, finish=None), "finish is missing"),
        (lambda line: changed(line, tokens=[1, "2", 3]), "tokens.1: Input should be a valid int"),
        (lambda line: changed(line, decode_ms=float("nan")), "decode_ms: Input should be a finite"),
        (lambda line: changed(line, step_ms=[1.0]), "step_ms has 1 items and committed 5"),
        (lambda line: changed(line, margins=[1.0]), "margins has 1 items and tokens 6"),
    ],
)
def test_a_damaged_repetition_names_the_line_too(folder, kind, damage, said):
    path = folder / f"{kind}_001.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{damage(second)}\n")
    assert refusal(folder).startswith(f"{path}: line 2: {said}")


def test_a_repetition_that_lost_a_line_is_not_taken_for_a_shorter_one(folder):
    path = folder / "repetition_001.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert f"{path}: has 1 lines and the first repetition 2; delete" in refusal(folder)
    path.write_text("")
    assert f"{path}: is empty; delete" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "place"), [("record.json", ""), ("control_000.jsonl", "line 1: ")]
)
def test_a_field_of_a_newer_version_is_said_to_be_one_and_nothing_is_to_be_deleted(
    folder, name, place
):
    path = folder / name
    first, *rest = path.read_text().splitlines() if place else [path.read_text()]
    path.write_text("\n".join([changed(first, colour="red"), *rest]))
    assert refusal(folder) == (
        f"{path}: {place}colour is unknown: a newer version wrote it; read it with that version"
    )


def test_a_folder_without_a_record_is_one_line_too(tmp_path):
    assert refusal(tmp_path).startswith(f"{tmp_path / 'record.json'}: is missing; delete")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[:20], "Invalid JSON: EOF"),
        (lambda text: changed(text, cell_ids=None), "cell_ids is missing"),
        (lambda text: changed(text, cell_ids=[1]), "cell_ids.0: Input should be a valid string"),
        (lambda text: changed(text, tracking={"uri": "x"}), "tracking.experiment is missing"),
    ],
)
def test_a_damaged_sweep_file_is_one_line(tmp_path, damage, said):
    sweep = create_sweep(tmp_path, ["a"])
    path = sweep.path / "sweep.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(Damaged, match=r"put a copy back, or measure again") as caught:
        sweep.records()
    assert str(caught.value).startswith(f"{path}: {said}")


def test_what_else_is_noted_of_a_sweep_is_kept(tmp_path):
    sweep = create_sweep(tmp_path, ["a"])
    sweep.note(summary={"verdict": "yes"})
    sweep.note(ended="FINISHED")
    assert sweep.facts["summary"] == {"verdict": "yes"}


def test_a_record_whose_parts_have_no_names_is_damaged(folder):
    path = folder / "record.json"
    plain = json.loads(path.read_text())
    del plain["abilities"]
    plain["params"]["verify"] = ["extend"]
    path.write_text(json.dumps(plain))
    assert "params.verify" in refusal(folder)


def test_a_cell_outside_of_the_sweeps_folder_is_refused(tmp_path):
    sweep = create_sweep(tmp_path, ["../../other"])
    with pytest.raises(Damaged, match=r"cell_ids: '\.\./\.\./other' is no cell's name"):
        sweep.records()
