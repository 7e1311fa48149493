"""What ``inspect`` needs: where a batch is in a segment, and how it is shown."""
