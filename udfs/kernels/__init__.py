"""Compiled kernels: they turn bytes into columns."""
