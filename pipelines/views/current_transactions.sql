-- The rows of `transactions`
-- Columns: those of transactions
SELECT t.* FROM transactions t
