"""A grid that does not fit at once: groups, and plain decoding measured again beside later ones."""

import shutil
import time
from dataclasses import dataclass, replace

import pytest

from drafters.ngram import Ngram
from drafters.none import NoDrafter
from pipeline.cell.cell import Sampling
from pipeline.judge.comparison import compare
from pipeline.record.record import Status
from pipeline.record.sweep_folder import SweepFolder
from pipeline.report import terminal_table
from pipeline.sweep.launch import run_sweep
from pipeline.sweep.workers import WorkerFailed
from pipeline.track import load
from tests.faults import tiny_engine
from tests.faults.tiny_engine import TinyEngine, plan
from tests.pipeline.inline import InlineLauncher, make_settings

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@dataclass
class Machine:
    """A machine that gets slower with every engine that starts after the first `quiet` ones."""

    quiet: int
    starts: int = 0

    @property
    def slowness(self) -> float:
        return float(max(1, self.starts - self.quiet + 1))


@pytest.fixture
def machine(tmp_path, monkeypatch, empty_store):
    """A machine of which each group of two cells makes the next one slower."""
    shutil.copy(empty_store, tmp_path)
    found = Machine(quiet=2)
    answer, start = tiny_engine.TinySession.generate, TinyEngine.start

    def started(engine, cell):
        found.starts += 1
        session = start(engine, cell)
        session.cell_id = cell.cell_id
        return session

    def slowed(session, prompt, repetition):
        plain = answer(session, prompt, repetition)
        times = tuple(found.slowness * each for each in plain.step_ms)
        return replace(plain, step_ms=times, verify_ms=times, decode_ms=sum(times))

    monkeypatch.setattr(TinyEngine, "start", started)
    monkeypatch.setattr(tiny_engine.TinySession, "generate", slowed)
    return found


def drafting(planned, drafter):
    """Return the cell with another drafter."""
    return replace(planned, cell=replace(planned.cell, drafter=drafter))


def grid(drafters=3, label="x"):
    """Return drafted cells and, last of all, the plain cell that they are compared with."""
    plain = plan(TinyEngine(label))
    drafted = [drafting(plain, Ngram(f"ngram-{i}")) for i in range(drafters)]
    return [*drafted, plain]


def sweep(runs, planned, launcher=None, **changed):
    """Run a sweep; return its exit status, its folder and which cells started, group by group."""
    launcher = launcher or InlineLauncher(resident=2)
    settings = make_settings(runs, launcher, **changed)
    status = run_sweep(planned, settings, time.perf_counter())
    groups, alone = [], False
    for cell, name in launcher.log:
        if name == "start":
            groups = [*groups[:-1], [*groups[-1], cell]] if alone else [*groups, [cell]]
        alone = name == "start"
    return status, SweepFolder(sorted((runs / "sweeps").iterdir())[-1]), groups


def test_a_cell_of_a_later_group_is_compared_with_plain_decoding_in_its_own_turns(
    tmp_path, machine
):
    planned = grid(3)
    status, folder, groups = sweep(tmp_path, planned)
    a, b, c, plain = (p.cell.cell_id for p in planned)
    assert status == 0
    assert groups == [[plain, a], [plain, b], [plain, c]], "plain first, and again each time"
    records = folder.records()
    assert [r.cell_id for r in records] == [a, b, c, plain], "the grid's order"
    assert [len(r.repetitions) for r in records] == [3] * 4
    assert [len(r.control) for r in records] == [0, 3, 3, 0]
    (found,) = compare(records)
    speeds = [found.measurements[r.cell_id].overall.tok_s.value for r in records]
    assert speeds[2] < speeds[0] / 3, "the machine did slow down"
    for measurement in found.measurements.values():
        assert measurement.overall.versus.speed_up.value == pytest.approx(1)
    assert found.not_interleaved == frozenset()
    report = (folder.path / "report.md").read_text()
    assert "came later and took turns with none-x × extend measured again" in report


def test_what_was_measured_again_is_in_mlflow_too(tmp_path, machine):
    _, folder, _ = sweep(tmp_path, grid(2))
    records = folder.records()
    assert [len(r.control) for r in records] == [0, 3, 0]
    assert load(f"sqlite:///{tmp_path}/mlflow.db", folder.sweep_id).records == records


def test_a_grid_that_fits_is_one_group_and_measures_nothing_twice(tmp_path, machine):
    planned = grid(3)
    _, folder, groups = sweep(tmp_path, planned, InlineLauncher(resident=4))
    assert [len(group) for group in groups] == [4]
    assert len({r.group_starts for r in folder.records()}) == 1
    assert not (folder.path / "controls").exists()


def test_comparisons_stay_whole_where_they_fit(tmp_path, machine):
    planned = [*grid(1, "x"), *grid(1, "y"), *grid(2, "z")]
    _, folder, groups = sweep(tmp_path, planned, InlineLauncher(resident=5))
    assert [len(group) for group in groups] == [4, 3]
    assert not any(r.control for r in folder.records())


def test_an_interrupted_cell_has_plain_decoding_from_before_and_after(
    tmp_path, machine, monkeypatch
):
    planned = grid(2)
    late = planned[1].cell.cell_id
    answer = tiny_engine.TinySession.generate

    def interrupted(session, prompt, repetition):
        if repetition == 1 and session.cell_id == late:
            raise KeyboardInterrupt
        return answer(session, prompt, repetition)

    with monkeypatch.context() as patch:
        patch.setattr(tiny_engine.TinySession, "generate", interrupted)
        status, folder, _ = sweep(tmp_path, planned)
    before = folder.record(late)
    assert (status, len(before.repetitions), len(before.control)) == (130, 1, 1)

    status, again, groups = sweep(tmp_path, planned, resume=True)
    assert (status, again) == (0, folder)
    assert groups == [[planned[2].cell.cell_id, late]]
    record = again.record(late)
    assert len(record.group_starts) == 2
    assert (len(record.repetitions), len(record.control)) == (3, 3)
    assert (record.repetitions[0], record.control[0]) == (before.repetitions[0], before.control[0])
    (found,) = compare(again.records())
    assert found.measurements[late].overall.versus.speed_up.value == pytest.approx(1)


def test_without_its_control_a_cell_is_measured_and_said_to_stand_apart(
    tmp_path, machine, monkeypatch, capsys
):
    planned = grid(2)
    spawn, spawned = InlineLauncher.spawn, []

    def spawn_once(launcher, mark, gpus, log):
        if mark in spawned:
            raise WorkerFailed("no worker process came up")
        spawned.append(mark)
        return spawn(launcher, mark, gpus, log)

    monkeypatch.setattr(InlineLauncher, "spawn", spawn_once)
    status, folder, _ = sweep(tmp_path, planned)
    assert status == 0
    assert [r.status for r in folder.records()] == [Status.OK] * 3
    printed = capsys.readouterr().out
    assert "none-x × extend (again, as control): failed: no worker process came up" in printed
    (found,) = compare(folder.records())
    assert found.not_interleaved == {planned[1].cell.cell_id}
    said = "Not all cells (ngram-1 × extend did not) took turns with the best baseline"
    assert said in printed
    assert said in (folder.path / "report.md").read_text()


def test_cells_that_must_be_alone_are_said_to_stand_apart(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(TinyEngine, "resident", False, raising=False)
    _, folder, groups = sweep(tmp_path, grid(2))
    assert [len(group) for group in groups] == [1, 1, 1]
    assert "\nNo cell took turns with the best baseline" in terminal_table(folder.records())


def test_what_loops_in_a_drafted_cell_does_not_count_when_the_control_is_chosen(
    tmp_path, machine, monkeypatch
):
    machine.quiet = 99
    sampled = plan(TinyEngine("x", steps=30))
    sampled = replace(sampled, cell=replace(sampled.cell, sampling=Sampling(31, temperature=1.0)))
    plain, fast_on_a_loop = sampled, drafting(sampled, NoDrafter("none-y"))
    first, late = (drafting(sampled, Ngram(f"ngram-{i}")) for i in range(2))
    looping, uneven = first.cell.cell_id, fast_on_a_loop.cell.cell_id
    answer = tiny_engine.TinySession.generate

    def loops(session, prompt, repetition):
        found = answer(session, prompt, repetition)
        if prompt.id == "p0" and session.cell_id == looping:
            return replace(found, tokens=(7,) * len(found.tokens))
        if session.cell_id == uneven:
            share = 0.1 if prompt.id == "p0" else 1.1
            times = tuple(share * each for each in found.step_ms)
            return replace(found, step_ms=times, verify_ms=times, decode_ms=sum(times))
        return found

    monkeypatch.setattr(tiny_engine.TinySession, "generate", loops)
    planned = [plain, fast_on_a_loop, first, late]
    _, folder, groups = sweep(tmp_path, planned, InlineLauncher(resident=3))
    assert [len(group) for group in groups] == [3, 2]
    (found,) = compare(folder.records())
    assert found.exclude == {"p0"}
    assert found.best.cell_id == plain.cell.cell_id == folder.record(late.cell.cell_id).control_id
    assert found.not_interleaved == frozenset()
