"""Plans a run: compares what lies in the sources with the ledger, and cuts segments into slices."""
