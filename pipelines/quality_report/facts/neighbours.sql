-- The sound batches of a log before and after a place
WITH placed AS (
  SELECT row(file, position) AS place, last_offset, base_offset, leader_epoch, magic FROM sound WHERE log = $log
)
SELECT max_by(last_offset, place) FILTER (place < row($file, $position)),
  min_by(base_offset, place) FILTER (place > row($file, $position)),
  max_by(leader_epoch, place) FILTER (place < row($file, $position)),
  min_by(leader_epoch, place) FILTER (place > row($file, $position)),
  coalesce(max_by(magic, place) FILTER (place < row($file, $position)),
    min_by(magic, place) FILTER (place > row($file, $position)))
FROM placed
