"""Decodes segments: from windows of bytes to record batches, and past damage."""
