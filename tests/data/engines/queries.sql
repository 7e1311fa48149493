SELECT * FROM (SELECT topic, offset AS o FROM records WHERE offset > 0) x WHERE x.o < 100;

WITH a AS (SELECT topic, count(*) AS n FROM records GROUP BY topic), b AS (SELECT max(n) AS m FROM a) SELECT a.* FROM a JOIN b ON a.n = b.m;

WITH a(x, y) AS (SELECT topic, offset FROM records) SELECT x, max(y) FROM a GROUP BY x;

SELECT r.topic, m.value FROM records r LEFT JOIN quality_metrics m ON m.value = r.offset;

SELECT r.offset, q.n FROM records r JOIN (SELECT topic, count(*) n FROM records GROUP BY 1) q ON q.topic = r.topic WHERE r.is_control;

SELECT count(*) FROM records r CROSS JOIN quality_metrics;

SELECT count(*) FROM records a, records b WHERE a.offset = b.offset AND a.topic = b.topic;

SELECT count(*) FROM records a FULL OUTER JOIN (SELECT 7 AS x UNION ALL SELECT 12345) b ON a.offset = b.x;

SELECT count(*), count(b.x) FROM records a RIGHT JOIN (SELECT 7L AS x UNION SELECT 12345L) b ON a.offset = b.x;

SELECT topic, offset FROM records a LEFT SEMI JOIN quality_metrics m ON m.value = a.offset;

SELECT topic, offset FROM records a LEFT ANTI JOIN quality_metrics m ON m.value = a.offset;

SELECT topic FROM records WHERE offset IN (SELECT max(offset) FROM records) AND topic IN (SELECT topic FROM records WHERE is_control);

SELECT topic, offset FROM records WHERE offset = (SELECT max(offset) FROM records);

SELECT (SELECT count(*) FROM records) AS n, (SELECT max(value) FROM quality_metrics WHERE value < 10) AS m;

SELECT topic FROM records WHERE EXISTS (SELECT 1 FROM quality_metrics WHERE value > 0) AND offset = 7;

SELECT topic, partition FROM records UNION SELECT `check`, 5 FROM quality_metrics ORDER BY 1, 2;

SELECT offset FROM records UNION ALL SELECT sequence FROM records;

SELECT topic FROM records EXCEPT SELECT topic FROM records WHERE is_control;

SELECT offset FROM records INTERSECT SELECT CAST(sequence AS BIGINT) FROM records;

(SELECT offset FROM records ORDER BY offset DESC LIMIT 3) UNION ALL (SELECT -5L) ORDER BY offset NULLS LAST LIMIT 2;

SELECT topic AS t, count(*) AS n FROM records GROUP BY t HAVING n > 3 ORDER BY n DESC, t;

SELECT topic, partition, sum(sequence) / count(*) AS s FROM records GROUP BY ALL ORDER BY ALL;

SELECT offset % 3 AS m, count(*) AS n FROM records GROUP BY m;

SELECT upper_half, count(*) AS n FROM (SELECT offset > 5 AS upper_half FROM records) GROUP BY upper_half;

SELECT offset AS a, a + 1 AS b, b * 2 AS c FROM records WHERE offset < 1000 AND offset > -2000;

SELECT sequence AS offset, offset + 1 AS c FROM records WHERE offset < 10000 AND offset > -10000;

SELECT -offset AS offset FROM records ORDER BY offset;

SELECT -offset AS o FROM records ORDER BY offset DESC, o;

SELECT topic FROM records GROUP BY topic ORDER BY max(offset), topic;

SELECT OFFSET, Topic, R.PARTITION FROM Records R ORDER BY OFFSET, topic, partition;

SELECT CAST(key AS STRING), CAST(offset AS STRING), CAST(max(offset) OVER () AS STRING) AS z FROM records;

SELECT CAST(offset + 1 AS STRING), length(topic), coalesce(offset, 0), 'lit', 5, NULL, true, round(offset), -5 AS m FROM records;

SELECT * FROM records WHERE topic = 't1' AND partition = 1 AND magic = 2;

SELECT * EXCEPT (key, value, headers) FROM records WHERE magic IS NULL;

SELECT r.* , m.`check` FROM records r JOIN quality_metrics m ON r.offset = m.value;

SELECT topic, h.key, h.value FROM records LATERAL VIEW explode(headers) x AS h;

SELECT topic, h.key, count(*) AS n FROM records LATERAL VIEW explode(headers) AS h GROUP BY topic, h.key;

SELECT count(*) FROM records LIMIT 0;

SELECT topic FROM records ORDER BY topic, partition LIMIT 3 OFFSET 2;

SELECT 1 AS a, 2 AS a;

SELECT DISTINCT CAST(control_type AS BINARY) AS b FROM records;

SELECT CASE WHEN topic = 't1' THEN 'one' END AS c, count(*) AS n FROM records GROUP BY CASE WHEN topic = 't1' THEN 'one' END;

SELECT CAST('12' AS INT) + 1 AS a, CAST(' 7 ' AS BIGINT) AS b, CAST('-3' AS TINYINT) AS c;

FROM records SELECT offset WHERE offset > 0;

SELECT topic, count(*) AS count FROM records GROUP BY topic ORDER BY count DESC, topic LIMIT 2;

SELECT current_timestamp() > TIMESTAMP '2020-01-01' AS now, now() < TIMESTAMP '2100-01-01' AS t;

SELECT offset FROM records WHERE timestamp >= '2024-01-01' AND timestamp < '2025-01-01' ORDER BY offset;

SELECT sum(size_bytes), avg(size_bytes), count(size_bytes) FROM records;

SELECT topic, sum(value) FROM (SELECT topic, 1 AS value FROM records UNION ALL SELECT topic, 2 FROM records) GROUP BY topic;

SELECT a.offset FROM records a LEFT JOIN records b ON a.offset = b.sequence AND b.is_control WHERE b.topic IS NULL;

SELECT timestampType, count(*) FROM records GROUP BY timestamptype ORDER BY timestampTYPE;

SELECT NOT (offset > 5) AS a, NOT is_control AND offset IS NOT NULL AS b, (magic + 1) * 2 AS c, magic + 1 * 2 AS d, magic - 1 - 1 AS e, -(offset) AS f, offset % 10 % 3 AS g, 10 - (5 - 3) AS h FROM records;

SELECT max(OFFSET), count(DISTINCT r.topic), sum(r.offset % 5), max(magic) + 1, min(magic) * 2 - 1 FROM records r;
