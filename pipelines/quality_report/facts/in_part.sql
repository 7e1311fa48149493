-- Segments of which records, or all, are left out of the lake
SELECT CAST(coalesce(sum(in_part), 0) AS BIGINT) FROM log_files
