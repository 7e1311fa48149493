"""Reads the files that a broker keeps next to its segments, as Arrow record batches, without a kernel.

entries             .index, .timeindex and .txnindex: entries of a fixed size
producer_snapshot   .snapshot: what the broker knows of each producer
checkpoint_files    leader-epoch-checkpoint, and the checkpoint files of a log directory
kraft_snapshot      .checkpoint: the records of a snapshot of the metadata log
files               which of these a file is, by its name

A file that is not what its name says never raises an error: what can be read of it are rows, and a row with
the reason in ``error`` is where reading ended. ``error`` is null in all other rows.
"""
