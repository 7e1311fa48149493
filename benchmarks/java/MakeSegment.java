import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/**
 * Writes one segment file as a producer with Kafka's own library would fill it.
 *
 * usage: MakeSegment OUT CODEC MAGIC RECORDS VALUE_BYTES HEADERS TOTAL_BYTES SEED
 *
 * A batch holds RECORDS records on average (1 to 2 * RECORDS - 1), a value VALUE_BYTES (half to one and a half
 * times as many): small JSON texts of words from a dictionary, which compress about as event data do. The file
 * ends with the last whole batch that fits TOTAL_BYTES. Prints the file's batches, records and bytes.
 *
 * Written so that Janino, the compiler that Spark ships, compiles it: no lambdas, no inferred generics.
 */
public class MakeSegment {
    private static final int WORDS = 2000;
    private static final int KEYS = 1000000;
    private static final long FIRST_TIMESTAMP = 1714000000000L;
    private static final long PRODUCER_ID = 4000L;

    public static void main(String[] arguments) throws Exception {
        CompressionType codec = CompressionType.forName(arguments[1]);
        byte magic = Byte.parseByte(arguments[2]);
        int records = Integer.parseInt(arguments[3]);
        int valueBytes = Integer.parseInt(arguments[4]);
        int headers = magic < RecordBatch.MAGIC_VALUE_V2 ? 0 : Integer.parseInt(arguments[5]);
        long total = Long.parseLong(arguments[6]);
        Random random = new Random(Long.parseLong(arguments[7]));
        String[] words = words(random);

        long offset = 0;
        long timestamp = FIRST_TIMESTAMP;
        long written = 0;
        long batches = 0;
        FileChannel channel = new FileOutputStream(arguments[0]).getChannel();
        while (true) {
            ByteBuffer buffer = ByteBuffer.allocate(records * (valueBytes + 200) + 4096);
            MemoryRecordsBuilder builder = builder(buffer, codec, magic, offset, timestamp);
            int count = 1 + random.nextInt(2 * records - 1);
            for (int i = 0; i < count; i++) {
                byte[] key = ("user-" + random.nextInt(KEYS)).getBytes("UTF-8");
                byte[] value = value(random, words, offset + i, valueBytes).getBytes("UTF-8");
                long stamp = magic == RecordBatch.MAGIC_VALUE_V0 ? RecordBatch.NO_TIMESTAMP : timestamp;
                builder.appendWithOffset(offset + i, stamp, key, value, headers(random, headers));
                timestamp += random.nextInt(5);
            }
            MemoryRecords batch = builder.build();
            if (written + batch.sizeInBytes() > total) {
                break;
            }
            written += batch.writeFullyTo(channel);
            offset += count;
            batches++;
        }
        channel.close();
        System.out.println(batches + " " + offset + " " + written);
    }

    private static MemoryRecordsBuilder builder(
            ByteBuffer buffer, CompressionType codec, byte magic, long offset, long timestamp) throws Exception {
        // Compression.of(codec).build(); Janino calls no static method of an interface
        Object choice = Compression.class.getMethod("of", new Class[] {CompressionType.class})
            .invoke(null, new Object[] {codec});
        Compression compression = ((Compression.Builder) choice).build();
        TimestampType type = magic == RecordBatch.MAGIC_VALUE_V0
            ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
        if (magic < RecordBatch.MAGIC_VALUE_V2) {
            return MemoryRecords.builder(buffer, magic, compression, type, offset);
        }
        int sequence = (int) (offset & Integer.MAX_VALUE);
        return MemoryRecords.builder(
            buffer, magic, compression, type, offset, timestamp, PRODUCER_ID, (short) 1, sequence, false, false, 3);
    }

    private static String[] words(Random random) {
        String[] words = new String[WORDS];
        for (int i = 0; i < WORDS; i++) {
            StringBuilder word = new StringBuilder();
            int length = 3 + random.nextInt(8);
            for (int j = 0; j < length; j++) {
                word.append((char) ('a' + random.nextInt(26)));
            }
            words[i] = word.toString();
        }
        return words;
    }

    private static String value(Random random, String[] words, long id, int valueBytes) {
        StringBuilder value = new StringBuilder("{\"id\":" + id + ",\"text\":\"");
        int length = valueBytes / 2 + random.nextInt(Math.max(1, valueBytes));
        while (value.length() < length - 2) {
            value.append(words[random.nextInt(WORDS)]).append(' ');
        }
        return value.append("\"}").toString();
    }

    private static Header[] headers(Random random, int count) throws Exception {
        Header[] headers = new Header[count];
        for (int i = 0; i < count; i++) {
            headers[i] = new RecordHeader("h" + i, ("v" + random.nextInt(1000)).getBytes("UTF-8"));
        }
        return headers;
    }
}
