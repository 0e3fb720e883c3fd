"""What a sweep says of itself."""

import io

import pytest

from pipeline.record.record import Status
from pipeline.sweep.progress import Progress, numbers
from tests.pipeline.synthetic import make_plain, make_record


@pytest.fixture
def record():
    return make_record("none", "extend", (make_plain(),), (make_plain(),))


def test_without_a_terminal_every_line_is_plain(record):
    stream = io.StringIO()
    progress = Progress(2, 3, stream)
    progress.doing(f"starting {record.label}")
    progress.repeating(record)
    progress.repeated(record, 2.0)
    progress.ended(record.ended(Status.FAILED, "no weights"))
    lines = stream.getvalue().splitlines()
    assert lines == [
        f"0 of 2 done · starting {record.label}",
        f"[1/2] {record.label}: failed: no weights",
    ]


def test_a_terminal_has_one_line_that_changes(record, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    stream = io.StringIO()
    stream.isatty = lambda: True
    progress = Progress(2, 3, stream)
    progress.repeating(record)
    progress.repeated(record, 2.0)
    progress.repeating(record)
    text = stream.getvalue()
    assert "\n" not in text
    last = text.rsplit("\r\x1b[K", 1)[-1]
    assert last.startswith(f"0 of 2 done · measuring {record.label}, repetition")
    # Two more repetitions of this cell and three of the one to come, of 2 s each.
    assert "about 10 s left" in last
    assert last.endswith(numbers(record))


def test_a_line_that_is_too_long_for_the_terminal_is_cut(record, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    stream = io.StringIO()
    stream.isatty = lambda: True
    Progress(2, 3, stream).doing(f"starting {record.label}")
    assert stream.getvalue() == "\r\x1b[K0 of 2 done · starting none ×"


def test_cells_of_one_label_are_called_by_the_setting_that_tells_them_apart():
    stream = io.StringIO()
    record = make_record("ngram", "extend", (make_plain(),))
    Progress(2, 3, stream, {record.cell_id: "ngram × extend (max_match=2)"}).ended(record)
    assert "ngram × extend (max_match=2): " in stream.getvalue()
