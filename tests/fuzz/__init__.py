"""Fuzzing: inputs made by the million, and what must hold for each of them.

seeds    real batches of every magic and codec, small ones
mutate   changes them, compiled: bytes, fields, lengths, varints, with the checksum made right again
guarded  buffers that end where memory that must not be touched begins
checks   what must hold for an input: no exception, every byte accounted for, the reference decoder agrees
costs    what an input may cost: inputs made to be costly, and the bounds they are held to
layers   what runs in a child process: the kernels alone, whole segments, past findings
watchdog starts the child, sees it crash or hang, keeps the input that did it
plain    the same decoder without compilation, every index held to its array
guided   coverage-guided, by atheris, on the plain form
compared Hypothesis: compiled equals plain; Kafka's own library: both read the same
run      ``make fuzz``: all of it for a bounded time, with counts
"""
