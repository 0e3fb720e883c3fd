"""A sweep's folder."""

from pipeline.record.record import Status, save_record
from pipeline.record.sweep_folder import create_sweep, newest_sweep
from tests.faults.tiny_engine import TinyEngine, plan


def test_the_newest_sweep_of_the_same_cells_is_found_in_any_order(tmp_path):
    create_sweep(tmp_path, ["a", "b"])
    second = create_sweep(tmp_path, ["b", "a"])
    create_sweep(tmp_path, ["a", "b", "c"])
    assert newest_sweep(tmp_path, ["a", "b"]) == second
    assert newest_sweep(tmp_path, ["a"]) is None


def test_records_come_in_the_order_of_the_grid_and_only_those_there_are(tmp_path):
    one, two = plan(TinyEngine("1")).record, plan(TinyEngine("2")).record
    sweep = create_sweep(tmp_path, [two.cell_id, "missing", one.cell_id])
    for record in (one, two):
        save_record(record, sweep.cell(record.cell_id))
    assert sweep.records() == [two, one]


def test_notes_are_added_to_the_facts(tmp_path):
    sweep = create_sweep(tmp_path, ["a"], provenance={"cpu": "x"})
    sweep.note(ended="FINISHED")
    assert sweep.facts["provenance"] == {"cpu": "x"}
    assert sweep.facts["ended"] == "FINISHED"


def test_forgetting_a_failed_cell_leaves_nothing_of_it(tmp_path):
    record = plan(TinyEngine("1")).record.ended(Status.FAILED, "reason")
    sweep = create_sweep(tmp_path, [record.cell_id])
    save_record(record, sweep.cell(record.cell_id))
    sweep.forget(record.cell_id)
    assert sweep.record(record.cell_id) is None
