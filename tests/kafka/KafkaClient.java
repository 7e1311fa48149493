import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes topics of a broker and writes to them with Kafka's own producer.
 *
 * usage: KafkaClient ADDRESS
 *
 * Standard input has a command a line, each is answered by lines and an empty line when it is done:
 *   create TOPIC PARTITIONS [NAME=VALUE ...]       with these settings of the topic
 *   send TOPIC PARTITION KEY=VALUE [KEY=VALUE ...]  a line for each record once all are acknowledged: its offset
 *   leader TOPIC PARTITION                         the id of the broker that leads it
 *   read TOPIC PARTITION ISOLATION                 a line for each record: offset, timestamp, key and value in Base64,
 *                                                  - for null, then key and value of each header alike
 *
 * Written so that Janino, the small compiler that Spark ships, compiles it: no lambdas, and a cast where generics
 * would have inferred a type.
 */
public class KafkaClient {
    public static void main(String[] arguments) throws Exception {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        AdminClient admin = AdminClient.create(settings);
        KafkaProducer producer = new KafkaProducer(settings, new ByteArraySerializer(), new ByteArraySerializer());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("create")) {
                create(admin, words);
            } else if (words[0].equals("leader")) {
                Map found = (Map) admin.describeTopics(Collections.singletonList(words[1])).allTopicNames().get();
                List partitions = ((TopicDescription) found.get(words[1])).partitions();
                System.out.println(((TopicPartitionInfo) partitions.get(Integer.parseInt(words[2]))).leader().id());
            } else if (words[0].equals("read")) {
                read(arguments[0], words);
            } else {
                send(producer, words);
            }
            System.out.println();
        }
        producer.close();
        admin.close();
    }

    private static void create(AdminClient admin, String[] words) throws Exception {
        Map configs = new HashMap();
        for (int i = 3; i < words.length; i++) {
            configs.put(words[i].split("=")[0], words[i].split("=")[1]);
        }
        short replicas = (short) -1; // default.replication.factor of the broker
        NewTopic topic = new NewTopic(words[1], Integer.parseInt(words[2]), replicas);
        admin.createTopics(Collections.singletonList(topic.configs(configs))).all().get();
    }

    private static void read(String address, String[] words) throws Exception {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", address);
        settings.put("isolation.level", words[3]);
        settings.put("enable.auto.commit", "false");
        KafkaConsumer consumer = new KafkaConsumer(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        TopicPartition place = new TopicPartition(words[1], Integer.parseInt(words[2]));
        consumer.assign(Collections.singletonList(place));
        consumer.seekToBeginning(Collections.singletonList(place));
        long end = ((Long) consumer.endOffsets(Collections.singletonList(place)).get(place)).longValue();
        while (consumer.position(place) < end) {
            Iterator records = consumer.poll(Duration.ofMillis(200)).iterator();
            while (records.hasNext()) {
                ConsumerRecord one = (ConsumerRecord) records.next();
                String line = one.offset() + " " + one.timestamp();
                line += " " + text((byte[]) one.key()) + " " + text((byte[]) one.value());
                Iterator headers = one.headers().iterator();
                while (headers.hasNext()) {
                    Header header = (Header) headers.next();
                    line += " " + text(header.key().getBytes("UTF-8")) + " " + text(header.value());
                }
                System.out.println(line);
            }
        }
        consumer.close();
    }

    private static String text(byte[] data) {
        return data == null ? "-" : "=" + Base64.getEncoder().encodeToString(data);
    }

    private static void send(KafkaProducer producer, String[] words) throws Exception {
        List sent = new ArrayList();
        for (int i = 3; i < words.length; i++) {
            byte[] key = words[i].split("=")[0].getBytes(StandardCharsets.UTF_8);
            byte[] value = words[i].split("=")[1].getBytes(StandardCharsets.UTF_8);
            sent.add(producer.send(new ProducerRecord(words[1], Integer.valueOf(words[2]), key, value)));
        }
        for (int i = 0; i < sent.size(); i++) {
            System.out.println(((RecordMetadata) ((Future) sent.get(i)).get()).offset());
        }
    }
}
