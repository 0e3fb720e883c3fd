"""The verdict: break-even, what each lever is worth, what a cell that was not run would give."""
