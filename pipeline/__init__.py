"""The pipeline: cells in, measurements and a verdict out.

Every room of the product, from the top floor down. A room may import itself and the rooms below
it, nothing above it, not even for a type or inside a function (`tests/test_rooms.py` reads this
list). A new line belongs to the lowest room that does what it does.

    experiments         a question each: its Markdown, its scripts, what they measured
    pipeline.__main__   `python -m pipeline`, from a command line to a finished sweep
    pipeline.gate       is this version as fast and as accepted as the reference?
    pipeline.sweep      configs to planned cells, worker processes, interleaved repetitions
    pipeline.report     a sweep in words: page, Markdown, plots, terminal
    pipeline.track      the only room that knows MLflow
    pipeline.roi        the decision: what to invest in, what it gives, on which machine
    pipeline.judge      which cells count: comparison, losslessness, identities
    pipeline.measure    every formula once; intervals; how figures are written
    pipeline.record     what is kept of a cell and of a sweep, on disk
    pipeline.engine     what runs a cell: torch anywhere, SGLang on a GPU box
    pipeline.cell       the cell, the engine's protocol, what an engine answers
    pipeline.workload   prompts, and where they come from
    pipeline.target     the model whose output must be kept: source, weights, tokenizer
    drafters            what proposes draft tokens: n-gram, EAGLE-3 and its training, vocabularies
    verify              how the target runs over draft tokens, and what a verify step's time is
    pipeline.machine    lock, left-over processes, CPU load, provenance, cache
    pipeline.config     from words on a command line to checked objects, errors as one line
"""
