"""Answers of the worker that are kept for later processes: what it was asked before, it need not compute again.

The worker's answer is a function of the module's bytecode, the job, and all that compiles. `question` makes a name of
these, `store` is the folder of files with such names, `answers` puts answers into it.
"""
