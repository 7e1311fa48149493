"""Holds the bounds of a topic's sample, by which its keys and values are recognised (``typed.sample``)."""

# Records; bytes of a segment in which their batches begin; bytes of keys and values after which none is added
SAMPLED, HEAD_BYTES, MOST_BYTES = 500, 1 << 18, 16 << 20
