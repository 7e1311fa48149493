"""One batch, byte by byte: what each field is, what is wrong, and what most likely happened to it.

fields     a place in the file or in the expanded payload, its name, value and meaning
headers    the header of a batch or of a message
records    the records in a payload
causes     of damage: a flipped bit, zeros, a cut, bytes of another file
batch      all of this for the batch at a position
"""
