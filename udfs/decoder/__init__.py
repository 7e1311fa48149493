"""The loop over a segment, from windows of bytes to record batches, and where it continues after damage."""
