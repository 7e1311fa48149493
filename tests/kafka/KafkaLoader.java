import java.io.File;
import java.util.HashMap;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Loads partition folders as a broker does when it starts, which changes their files, and prints the start and the
 * end offset of each log, a line a folder.
 *
 * usage: KafkaLoader FOLDER ...
 *
 * Written so that Janino, the small compiler that Spark ships, compiles it.
 */
public class KafkaLoader {
    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (int i = 0; i < arguments.length; i++) {
            UnifiedLog log = UnifiedLog.create(new File(arguments[i]), new LogConfig(new HashMap()), 0L, 0L, scheduler,
                new BrokerTopicStats(), Time.SYSTEM, 900000, new ProducerStateManagerConfig(86400000, false), 600000,
                new LogDirFailureChannel(1), true, Optional.empty());
            System.out.println(log.logStartOffset() + " " + log.logEndOffset());
            log.close();
        }
        scheduler.shutdown();
        System.exit(0);
    }
}
