// Commits offsets through Kafka's own client, transactional and plain, so that a broker with transaction.version=2
// raises the producer epoch with every transaction (KIP-890; librdkafka does not ask for it).
//   TxnOffsets BOOTSTRAP PRODUCERS TRANSACTIONS        one transaction is left open at the end
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class TxnOffsets {
    static String bootstrap;

    static KafkaProducer<byte[], byte[]> producer(int number) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", "tx-" + number);
        config.put("transaction.timeout.ms", 800000);
        config.put("retry.backoff.ms", 5);
        KafkaProducer<byte[], byte[]> out = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        out.initTransactions();
        return out;
    }

    static void begin(KafkaProducer<byte[], byte[]> producer, int group, int offset) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(new TopicPartition("t-a", offset % 2), new OffsetAndMetadata(offset));
        offsets.put(new TopicPartition("t-b", 0), new OffsetAndMetadata(offset, "at " + offset));
        producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata("g-" + group));
    }

    public static void main(String[] args) {
        bootstrap = args[0];
        int producers = Integer.parseInt(args[1]), transactions = Integer.parseInt(args[2]);
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", "plain");
        KafkaConsumer<byte[], byte[]> plain = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        plain.assign(List.of(new TopicPartition("t-a", 0)));
        List<KafkaProducer<byte[], byte[]>> all = new ArrayList<>();
        for (int i = 0; i < producers; i++) all.add(producer(i));
        for (int i = 0; i < transactions; i++) {
            int k = i % producers;
            begin(all.get(k), k, i);
            if (i % 97 == 50) all.set(k, producer(k));                 // fenced with its transaction open
            else if (i % 5 == 3) all.get(k).abortTransaction();
            else all.get(k).commitTransaction();
            if (i % 11 == 0) plain.commitSync(Map.of(new TopicPartition("t-a", 0), new OffsetAndMetadata(i)));
        }
        KafkaProducer<byte[], byte[]> open = producer(producers);
        begin(open, producers, transactions);
        open.flush();
        for (int i = 0; i < producers; i++) {                           // traffic after the open transaction
            begin(all.get(i), i, transactions + i);
            all.get(i).commitTransaction();
        }
        System.out.println("DONE");
        System.out.flush();
        Runtime.getRuntime().halt(0);                                   // closing would abort what is open
    }
}
