import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.compress.GzipCompression;
import org.apache.kafka.common.compress.Lz4Compression;
import org.apache.kafka.common.compress.NoCompression;
import org.apache.kafka.common.compress.SnappyCompression;
import org.apache.kafka.common.compress.ZstdCompression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/**
 * Writes segment files with Kafka's own library: the same records in several formats, batchings and codecs.
 *
 * usage: KafkaWriter FOLDER NAME MAGIC RECORDS CODEC LEVEL [NAME MAGIC RECORDS CODEC LEVEL ...]
 *
 * Standard input has a record a line: offset, timestamp, key, value, then key and value of each header, separated by
 * blanks. Binary is Base64 after "=", a null is "-". For each NAME the file FOLDER/NAME is written, RECORDS records
 * a batch; LEVEL "-" is for none and snappy. Magic 0 and 1 get no headers, magic 0 no timestamps.
 *
 * Written so that Janino, the small compiler that Spark ships, compiles it: no lambdas, and a cast where generics
 * would have inferred a type.
 */
public class KafkaWriter {
    private static final int ROOM = 4096;

    public static void main(String[] arguments) throws Exception {
        List lines = new ArrayList();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            lines.add(line.split(" "));
        }
        for (int i = 1; i < arguments.length; i += 5) {
            byte magic = Byte.parseByte(arguments[i + 1]);
            Compression codec = codec(arguments[i + 3], arguments[i + 4]);
            int records = Integer.parseInt(arguments[i + 2]);
            FileChannel file = new FileOutputStream(arguments[0] + "/" + arguments[i]).getChannel();
            for (int at = 0; at < lines.size(); at += records) {
                write(file, lines.subList(at, Math.min(lines.size(), at + records)), magic, codec);
            }
            file.close();
        }
    }

    private static Compression codec(String name, String level) {
        int number = level.equals("-") ? 0 : Integer.parseInt(level);
        if (name.equals("gzip")) {
            return new GzipCompression.Builder().level(number).build();
        } else if (name.equals("lz4")) {
            return new Lz4Compression.Builder().level(number).build();
        } else if (name.equals("zstd")) {
            return new ZstdCompression.Builder().level(number).build();
        }
        return name.equals("snappy") ? (Compression) new SnappyCompression.Builder().build()
            : (Compression) new NoCompression.Builder().build();
    }

    private static void write(FileChannel file, List records, byte magic, Compression codec) throws Exception {
        long base = Long.parseLong(((String[]) records.get(0))[0]);
        TimestampType type = magic == RecordBatch.MAGIC_VALUE_V0
            ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(ROOM), magic, codec, type, base);
        for (int i = 0; i < records.size(); i++) {
            String[] fields = (String[]) records.get(i);
            long timestamp = magic == RecordBatch.MAGIC_VALUE_V0 ? RecordBatch.NO_TIMESTAMP : Long.parseLong(fields[1]);
            Header[] headers = magic < RecordBatch.MAGIC_VALUE_V2 ? new Header[0] : headers(fields);
            builder.appendWithOffset(Long.parseLong(fields[0]), timestamp, binary(fields[2]), binary(fields[3]), headers);
        }
        ByteBuffer bytes = builder.build().buffer();
        while (bytes.hasRemaining()) {
            file.write(bytes);
        }
    }

    private static Header[] headers(String[] fields) throws Exception {
        Header[] headers = new Header[(fields.length - 4) / 2];
        for (int i = 0; i < headers.length; i++) {
            headers[i] = new RecordHeader(new String(binary(fields[4 + 2 * i]), "UTF-8"), binary(fields[5 + 2 * i]));
        }
        return headers;
    }

    private static byte[] binary(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text.substring(1));
    }
}
