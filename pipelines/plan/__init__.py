"""What a run has to do: the listing beside the ledger, cut into slices."""
