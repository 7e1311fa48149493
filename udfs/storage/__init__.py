"""Reads the bytes of segments: files, objects of a store, landed chunks, and ranges of other segments."""
