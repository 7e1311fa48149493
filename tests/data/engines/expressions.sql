SELECT key, value, offset, timestamp, headers, magic, producer_epoch, control_type, is_control, partition, topic FROM records;

SELECT offset + 1 AS a, offset - sequence AS b, sequence + leader_epoch AS c, producer_epoch + 1 AS e, magic + magic AS d, magic + partition AS f, offset * 1 AS g, magic * 2 AS h FROM records;

SELECT offset / 7 AS a, sequence / nullif(leader_epoch, 0) AS b, offset / 1000 AS c, 1 / 3 AS d, -offset AS e, abs(offset) AS f, -sequence AS g, abs(sequence) AS h FROM records;

SELECT offset % 7 AS a, offset % -7 AS b, pmod(offset, 7) AS c, pmod(offset, -7) AS d, sequence % 5 AS e, pmod(sequence, 5) AS f, offset DIV 7 AS g, offset DIV -7 AS h, sequence DIV 3 AS i, pmod(offset, sequence * 0 + 9) AS j FROM records;

SELECT shiftright(offset, 8) AS a, shiftright(offset, 63) AS b, shiftright(offset, 64) AS c, offset & 255 AS d, offset | 1 AS e, offset >> 3 AS f, sequence & 7 AS g FROM records;

SELECT CAST(key AS STRING) AS a, CAST(value AS STRING) AS b, key AS c, string(key) AS d FROM records;

SELECT CAST(key AS STRING), CAST(offset AS STRING), CAST(offset AS DOUBLE) FROM records;

SELECT length(key) AS a, octet_length(key) AS b, length(control_type) AS c, octet_length(control_type) AS d, char_length(control_type) AS e, hex(key) AS f, sha2(key, 256) AS g, unhex(sha2(key, 256)) AS h FROM records;

SELECT substring(control_type, 1, 2) AS a, substring(control_type, 2) AS b, substring(key, 1, 2) AS c, substring(key, 2) AS d, substr(control_type, 2, 100) AS g FROM records;

SELECT concat(control_type, '-', segment) AS a, control_type || offset AS b, concat(topic, partition, offset) AS c, replace(control_type, 'a', 'bb') AS d, replace(control_type, '''', '\\''') AS e, 'it''s' AS f, "dq'x" AS g, 'a\\b\n' AS h, 'a\'b' AS i, '100%' AS j FROM records;

SELECT control_type LIKE 'a%' AS a, control_type LIKE '%\\%b%' AS b, control_type LIKE 'a\%b\_c%' AS c, control_type LIKE '_' AS d, control_type LIKE '%' AS e, control_type LIKE '' AS f, control_type NOT LIKE '%a%' AS g, control_type LIKE '%\n%' AS h, control_type LIKE '%\\\\d' AS i FROM records;

SELECT startswith(control_type, 'a') AS a, endswith(control_type, 'd') AS b, contains(control_type, 'b') AS c, contains(control_type, '') AS d, startswith(control_type, segment) AS e FROM records;

SELECT key = x'' AS a, key < x'61' AS b, key >= value AS c, key <=> value AS d, key IN (x'61', x'ff') AS e, key BETWEEN x'00' AND x'61' AS f, CAST(key AS STRING) = 'a' AS g, CAST(key AS STRING) > 'a' AS h, CAST(key AS STRING) IN ('a', 'A', '') AS i, CAST(key AS STRING) <=> NULL AS j, CAST(key AS STRING) = CAST(value AS STRING) AS k, CAST(key AS STRING) IS NULL AS l FROM records;

SELECT control_type < segment AS a, control_type = 'a' AS b, control_type <> segment AS c, control_type BETWEEN 'A' AND 'b' AS d, control_type != 'a' AS e, control_type IN ('a', NULL) AS f, control_type NOT IN ('a', 'A') AS g, control_type == 'a' AS h FROM records;

SELECT offset < sequence AS a, offset = 7 AS b, offset > 1e3 AS c, offset = 9007199254740993 AS d, CAST(offset AS DOUBLE) = offset AS e, sequence BETWEEN producer_epoch AND offset AS f, offset IN (1, 7, 2147483648) AS g, magic = 2 AS h FROM records;

SELECT NOT is_control AS a, is_control AND is_transactional AS b, is_control OR is_transactional AS c, is_control IS TRUE AS d, is_control IS NOT TRUE AS e, is_control IS FALSE AS f, is_control = is_transactional AS g, is_control <=> NULL AS h, is_control IS NULL AS i, CAST(is_control AS INT) AS j, CAST(is_control AS STRING) AS k, is_control > is_transactional AS l FROM records;

SELECT coalesce(offset, sequence, -1) AS a, nvl(control_type, 'none') AS b, ifnull(offset, 0) AS c, if(offset > 0, 'pos', control_type) AS d, CASE WHEN offset > 0 THEN 1 WHEN offset < 0 THEN offset END AS e, CASE sequence WHEN 1 THEN 'one' WHEN 3 THEN 'three' ELSE 'x' END AS f, nullif(offset, 7) AS g, nullif(control_type, '') AS h, greatest(offset, sequence) AS i, least(offset, sequence, 3) AS j, greatest(control_type, segment) AS k, least(timestamp, TIMESTAMP '2000-01-01') AS l, coalesce(key, x'00') AS m FROM records;

SELECT CAST(timestamp AS STRING) AS a, unix_millis(timestamp) AS b, CAST(timestamp AS DATE) AS c, date(timestamp) AS d, date_trunc('HOUR', timestamp) AS e, date_trunc('day', timestamp) AS f, date_trunc('MONTH', timestamp) AS g, hour(timestamp) AS h, year(timestamp) AS i, month(timestamp) AS j, minute(timestamp) AS k, second(timestamp) AS l, CAST(timestamp AS BIGINT) AS m, date_trunc('year', timestamp) AS n, date_trunc('minute', timestamp) AS o, date_trunc('second', timestamp) AS p FROM records;

SELECT timestamp > '2024-01-01' AS a, timestamp = '2024-02-29 12:30:45.12' AS b, timestamp >= TIMESTAMP '1970-01-01 00:00:00' AS c, timestamp < TIMESTAMP '2024-02-29T12:30:45.000001' AS d, timestamp BETWEEN '1969-01-01' AND '2024-02-29 12:30:45' AS e, TIMESTAMP '2020-01-01 01:02:03.5' AS f, timestamp IN ('1970-01-01', '9999-12-31 23:59:59.999999') AS g, CAST('2020-01-01' AS TIMESTAMP) AS h, CAST('2020-01-02' AS DATE) AS i, DATE '2020-01-01' AS j, CAST(CAST(timestamp AS DATE) AS STRING) AS k, CAST(CAST(timestamp AS DATE) AS TIMESTAMP) AS l FROM records;

SELECT timestamp_millis(sequence) AS a, timestamp_millis(timestamp_ms % 253402300800000) AS b, timestamp_millis(-1) AS c FROM records;

SELECT value, round(value) AS a, round(value, 2) AS b, round(value, 0) AS c, value + 1 AS d, value * 2 AS e, value - 0.5e0 AS f, -value AS g, abs(value) AS h, value > 1 AS i, value = 0 AS j, value IN (0, 1) AS k, value <=> value AS l, value / 3 AS m, value > 2 AND value < 1e8 AS n FROM quality_metrics;

SELECT round(offset, 2) AS a, round(sequence) AS b, floor(offset) AS c, ceil(sequence) AS d FROM records;

SELECT floor(value) AS a, ceil(value) AS b, CAST(value AS INT) AS c, CAST(value AS BIGINT) AS d FROM quality_metrics WHERE abs(value) < 1e6;

SELECT headers AS a FROM records WHERE is_control;

SELECT NULL AS n, true AS t, false AS f, 1 AS i, 9999999999 AS b, 1e3 AS d, x'00FF' AS h, 'é' AS s, 10L AS l, -5 AS m, - 5 AS o, 3S AS q;

SELECT control_type, count(*), count(1), count(offset), count(DISTINCT offset), count(DISTINCT offset, sequence), sum(offset % 1000), sum(sequence), avg(sequence), min(offset), max(control_type), min(key), max(timestamp), count_if(is_control), sum(1) FROM records GROUP BY control_type;

SELECT topic, bool_or(is_control) AS a, bool_and(is_control) AS b, max_by(offset, offset) AS c, min_by(timestamp_ms, timestamp_ms) AS d, sum(offset % 100) FILTER (WHERE is_control) AS e, count(*) FILTER (WHERE offset > 0) AS f, min(is_control) AS g, max(is_control) AS h, sum(magic) AS i, avg(magic) AS j, sum(producer_epoch) AS k FROM records GROUP BY topic;

SELECT count(DISTINCT key), count(DISTINCT CAST(key AS STRING)), min(value), max(value) FROM records;

SELECT min(value) AS a, max(value) AS b, count(value) AS c, count(DISTINCT value) AS d FROM quality_metrics;

SELECT `check`, sum(value) AS a, avg(value) AS b, max(value) AS c FROM quality_metrics WHERE abs(value) < 100 GROUP BY `check`;

SELECT value, count(*) AS n FROM quality_metrics GROUP BY value;

SELECT count(*) AS n, sum(offset) AS s, max(offset) AS m, avg(offset) AS a, bool_or(is_control) AS o FROM records WHERE false;

SELECT key, count(*) AS n FROM records GROUP BY key ORDER BY key;

SELECT control_type, offset FROM records ORDER BY control_type, offset DESC, key, sequence;

SELECT offset, value FROM records ORDER BY offset DESC NULLS FIRST, value NULLS LAST, key, sequence;

SELECT value FROM quality_metrics WHERE value <> 0 OR value IS NULL ORDER BY value;

SELECT value FROM quality_metrics WHERE value <> 0 ORDER BY value DESC;

SELECT timestamp, is_control, key FROM records ORDER BY ALL;

SELECT DISTINCT control_type, is_control FROM records ORDER BY 2 DESC, 1;

SELECT topic, control_type, count(*) AS n, rank() OVER (PARTITION BY topic ORDER BY count(*) DESC) AS r FROM records GROUP BY topic, control_type ORDER BY ALL;

SELECT sum(sequence) OVER (PARTITION BY topic ORDER BY offset) AS f, count(key) OVER (ORDER BY timestamp) AS i, avg(offset) OVER (PARTITION BY topic) AS a, min(offset) OVER w AS b FROM records WINDOW w AS (PARTITION BY partition ORDER BY offset, key, sequence ROWS BETWEEN 2 PRECEDING AND CURRENT ROW);

SELECT offset, row_number() OVER (PARTITION BY topic ORDER BY offset, key, sequence, value, timestamp, control_type) AS a, lag(offset) OVER (PARTITION BY topic ORDER BY offset, key, sequence, value, timestamp, control_type) AS b, rank() OVER (ORDER BY control_type) AS d, dense_rank() OVER (ORDER BY control_type DESC) AS e FROM records;

SELECT lead(offset, 2, -9) OVER (PARTITION BY topic ORDER BY offset DESC, key, sequence, value, timestamp, control_type) AS c, max(offset) OVER (PARTITION BY control_type) AS g FROM records;

SELECT count(*) OVER (PARTITION BY topic ORDER BY offset, key, sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS h FROM records;

SELECT CAST(key AS STRING) LIKE 'a%' AS a, CAST(key AS STRING) LIKE '%a' AS b, CAST(key AS STRING) LIKE '%a%' AS c, CAST(key AS STRING) NOT LIKE '%€%' AS d, contains(CAST(key AS STRING), 'b') AS e, startswith(string(key), 'a') AS f, endswith(string(key), 'a') AS g FROM records;

SELECT CAST(key AS STRING) AS k, count(*) AS n, octet_length(CAST(key AS STRING)) AS o FROM records GROUP BY CAST(key AS STRING);

SELECT CAST(key AS STRING) AS k, count(*) AS n FROM records GROUP BY ALL ORDER BY k;

SELECT CAST(key AS STRING) AS k, count(*) AS n FROM records GROUP BY k ORDER BY n DESC, k LIMIT 5;

SELECT DISTINCT CAST(key AS STRING) AS k FROM records ORDER BY k DESC;

SELECT CAST(max(key) AS STRING) AS k, count(DISTINCT CAST(key AS STRING)) AS n FROM records;

SELECT CAST(key AS STRING), count(*) FROM records GROUP BY key;

SELECT CAST(key AS STRING) AS k FROM records WHERE CAST(value AS STRING) = 'a' OR CAST(value AS STRING) LIKE 'a%' ORDER BY CAST(key AS STRING);

SELECT headers.key AS a, array_distinct(headers.key) AS b, transform(headers, h -> h.value) AS c, filter(headers, h -> h.key = 'a') AS d, filter(headers, h -> h.value > x'00') AS e, try_element_at(headers, -1).value AS f, try_element_at(headers.key, 2) AS g, try_element_at(headers, 9) AS h FROM records;

SELECT try_validate_utf8(CAST(key AS STRING)) AS a, try_validate_utf8(control_type) AS b, transform(filter(headers, h -> h.key <> 'a'), x -> transform(headers, y -> y.key = x.key)) AS c, map_from_arrays(array_distinct(headers.key), transform(array_distinct(headers.key), n -> try_element_at(filter(headers, h -> h.key = n), -1).value)) AS d FROM records;

SELECT key_text, value_text, headers_text, headers_text['a'], element_at(headers_text, 'b') AS b, headers_text['a'] IS NULL AS c, map_keys(headers_text) AS d FROM (SELECT try_validate_utf8(CAST(key AS STRING)) AS key_text, try_validate_utf8(CAST(value AS STRING)) AS value_text, map_from_arrays(array_distinct(headers.key), transform(array_distinct(headers.key), name -> try_validate_utf8(CAST(try_element_at(filter(headers, h -> h.key = name), -1).value AS STRING)))) AS headers_text FROM records);
