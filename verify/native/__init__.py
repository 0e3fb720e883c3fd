"""The captured verify step of a CPU: a whole target forward in one call of compiled C.

Nothing in here runs per operator: fixed buffers, weights decoded in registers, one team of threads.
A row's result has the same bits whatever the step's width, the number of threads or the chunks of
a prefill, so a draft never changes the output.
"""
