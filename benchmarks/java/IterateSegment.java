import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.Iterator;
import org.apache.kafka.common.record.FileLogInputStream;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Reads one segment file with Kafka's own library, as a consumer that checks every checksum would.
 *
 * usage: IterateSegment FILE
 *
 * For every line of standard input, the number of passes to make, prints one line: nanoseconds of the fastest
 * pass, and the records it found. Of every record offset, timestamp, sizes and the first byte of its value are
 * looked at, so that none of them can be left out; nothing is kept.
 */
public class IterateSegment {
    private static long seen = 0;

    public static void main(String[] arguments) throws Exception {
        File file = new File(arguments[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            long best = Long.MAX_VALUE;
            long records = 0;
            for (int pass = Integer.parseInt(line.trim()); pass > 0; pass--) {
                long began = System.nanoTime();
                records = iterate(file);
                best = Math.min(best, System.nanoTime() - began);
            }
            System.out.println(best + " " + records + " " + (seen & 1));
            System.out.flush();
        }
    }

    private static long iterate(File file) throws Exception {
        long count = 0;
        BufferSupplier buffers = BufferSupplier.create();
        FileRecords segment = FileRecords.open(file, false);
        Iterator batches = segment.batches().iterator();
        while (batches.hasNext()) {
            FileLogInputStream.FileChannelRecordBatch batch = (FileLogInputStream.FileChannelRecordBatch) batches.next();
            batch.ensureValid();
            CloseableIterator records = batch.streamingIterator(buffers);
            while (records.hasNext()) {
                Record record = (Record) records.next();
                seen += record.offset() + record.timestamp() + record.keySize() + record.valueSize();
                if (record.hasValue()) {
                    seen += record.value().get(record.value().position());
                }
                count++;
            }
            records.close();
        }
        segment.close();
        return count;
    }
}
