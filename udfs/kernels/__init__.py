"""Compiled kernels: bytes to columns."""
