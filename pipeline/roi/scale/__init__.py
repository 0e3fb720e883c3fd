"""A cost model of a tensor-parallel target, for machines that were not measured."""
