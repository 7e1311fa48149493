"""Inspects one batch, byte by byte: what each field is, what is wrong, and what most likely happened to it.

fields          a place in the file or in the expanded payload, its name, value and meaning; headers
records         the records in a payload
place           where to look, the batches next to it, and damage there
breaks          where records stop to be records, and where they go on
causes          of damage, proved by the checksum: a flipped bit, a changed byte, bytes that were put in
other_batches   what the batches after it tell: a cut, bytes of another log
written_over    what the bytes tell: zeros, text, a file of another kind
contradictions  what no checksum covers, by what is next to a sound batch
mended          the records of a damaged batch once the cause is undone
batch           all of this for the batch at a position, the surest cause first
"""
