"""Plans a job: compares the listing with the ledger, and cuts segments into slices."""
