"""Answers questions of programs over the Model Context Protocol. It only reads."""
