"""Vectors of record batches for any decoder, a runner, and decoders to compare."""
