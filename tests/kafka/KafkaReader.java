import java.io.File;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Base64;
import java.util.Iterator;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.FileLogInputStream;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Reads segment files with Kafka's own library and prints what it found, as JSON.
 *
 * usage: KafkaReader FOLDER
 *
 * For every *.log file of FOLDER, in order of names: a line a batch with its header fields and, under "records",
 * what lies in it; then a line {"file", "end", "refused"} with the position where reading stopped. "refused" of a
 * batch is the exception that its checksum or its records raised, null where Kafka reads all of it. Bytes are
 * Base64. Inner messages of a wrapper are held to their own checksums too, which a consumer is free to skip.
 *
 * Written so that Janino, the small compiler that Spark ships, compiles it: no lambdas, and a cast where generics
 * would have inferred a type. A Java runtime without a compiler is enough to run it.
 */
public class KafkaReader {
    private static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);

    public static void main(String[] arguments) throws Exception {
        File[] files = new File(arguments[0]).listFiles();
        Arrays.sort(files);
        for (int i = 0; i < files.length; i++) {
            if (files[i].getName().endsWith(".log")) {
                readSegment(files[i]);
            }
        }
        OUT.flush();
    }

    private static void readSegment(File file) throws Exception {
        FileRecords segment = FileRecords.open(file, false);
        int end = 0;
        String refused = "null";
        try {
            Iterator batches = segment.batches().iterator();
            while (batches.hasNext()) {
                FileLogInputStream.FileChannelRecordBatch batch = (FileLogInputStream.FileChannelRecordBatch) batches.next();
                OUT.println(batchLine(file.getName(), batch));
                end = batch.position() + batch.sizeInBytes();
            }
        } catch (Throwable error) {
            refused = text(error.toString());
        } finally {
            segment.close();
        }
        OUT.println("{\"file\":" + text(file.getName()) + ",\"end\":" + end + ",\"refused\":" + refused + "}");
    }

    private static String batchLine(String file, FileLogInputStream.FileChannelRecordBatch batch) {
        StringBuilder line = new StringBuilder("{\"file\":" + text(file));
        line.append(",\"position\":").append(batch.position());
        line.append(",\"size_bytes\":").append(batch.sizeInBytes());
        line.append(",\"magic\":").append(batch.magic());
        String refused = "null";
        StringBuilder records = new StringBuilder();
        try {
            batch.ensureValid();
            appendHeader(line, batch);
            CloseableIterator iterator = batch.streamingIterator(BufferSupplier.NO_CACHING);
            try {
                while (iterator.hasNext()) {
                    Record record = (Record) iterator.next();
                    record.ensureValid();
                    String object = recordObject(batch, record);
                    records.append(records.length() == 0 ? "" : ",").append(object);
                }
            } finally {
                iterator.close();
            }
        } catch (Throwable error) {
            refused = text(error.toString());
        }
        return line + ",\"refused\":" + refused + ",\"records\":[" + records + "]}";
    }

    private static void appendHeader(StringBuilder line, RecordBatch batch) {
        StringBuilder header = new StringBuilder();
        header.append(",\"base_offset\":").append(batch.baseOffset());
        header.append(",\"last_offset\":").append(batch.lastOffset());
        header.append(",\"declared_count\":").append(batch.countOrNull());
        header.append(",\"compression\":").append(text(batch.compressionType().name));
        header.append(",\"timestampType\":").append(batch.timestampType().id);
        header.append(",\"crc_stored\":").append(batch.checksum());
        header.append(",\"max_timestamp_ms\":").append(batch.maxTimestamp());
        header.append(",\"leader_epoch\":").append(batch.partitionLeaderEpoch());
        header.append(",\"producer_id\":").append(batch.producerId());
        header.append(",\"producer_epoch\":").append(batch.producerEpoch());
        header.append(",\"base_sequence\":").append(batch.baseSequence());
        header.append(",\"last_sequence\":").append(batch.lastSequence());
        header.append(",\"is_transactional\":").append(batch.isTransactional());
        header.append(",\"is_control\":").append(batch.isControlBatch());
        header.append(",\"delete_horizon_ms\":");
        header.append(batch.deleteHorizonMs().isPresent() ? "" + batch.deleteHorizonMs().getAsLong() : "null");
        line.append(header);
    }

    private static String recordObject(RecordBatch batch, Record record) {
        StringBuilder object = new StringBuilder("{\"offset\":" + record.offset());
        object.append(",\"timestamp_ms\":").append(record.timestamp());
        object.append(",\"key\":").append(base64(record.hasKey() ? record.key() : null));
        object.append(",\"value\":").append(base64(record.hasValue() ? record.value() : null));
        object.append(",\"sequence\":").append(record.sequence());
        object.append(",\"size_bytes\":").append(record.sizeInBytes());
        object.append(",\"headers\":[");
        Header[] headers = record.headers();
        for (int i = 0; i < headers.length; i++) {
            byte[] value = headers[i].value();
            object.append(i == 0 ? "[" : ",[").append(text(headers[i].key())).append(",");
            object.append(base64(value == null ? null : ByteBuffer.wrap(value))).append("]");
        }
        object.append("],\"control_type\":").append(controlType(batch, record));
        return object.append("}").toString();
    }

    private static String controlType(RecordBatch batch, Record record) {
        if (!batch.isControlBatch()) {
            return "null";
        }
        ControlRecordType type = ControlRecordType.parse(record.key());
        if (type == ControlRecordType.ABORT || type == ControlRecordType.COMMIT) {
            EndTransactionMarker.deserialize(record);
        }
        return text(type.name());
    }

    private static String base64(ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] copy = new byte[bytes.remaining()];
        ByteBuffer unmoved = (ByteBuffer) bytes.duplicate();
        unmoved.get(copy, 0, copy.length);
        return "\"" + Base64.getEncoder().encodeToString(copy) + "\"";
    }

    /** A JSON string in ASCII. */
    private static String text(String value) {
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') {
                out.append("\\u").append(Integer.toHexString(0x10000 | c).substring(1));
            } else {
                out.append(c);
            }
        }
        return out.append("\"").toString();
    }
}
