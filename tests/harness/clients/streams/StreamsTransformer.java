import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams with exactly_once_v2: reads numbers and writes each to every output, and counts in a
 * store those of each input's partition, until its input ends. It ends with an error where only
 * another in its place can go on.
 *
 * <p>Its words are the bootstrap, the topic to read, which is the application's id too, the outputs
 * as topic:partitions with commas between, its name, how many numbers it polls at most, and a
 * folder of its own.
 */
public final class StreamsTransformer {
    private static final String SEEN = "seen";

    private StreamsTransformer() {}

    private static final class Count extends ContextualProcessor<byte[], byte[], byte[], byte[]> {
        @Override
        public void process(Record<byte[], byte[]> number) {
            KeyValueStore<Integer, Long> seen = context().getStateStore(SEEN);
            int partition = context().taskId().partition();
            Long before = seen.get(partition);
            seen.put(partition, before == null ? 1 : before + 1);
            context().forward(number);
        }
    }

    public static void main(String[] words) throws IOException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, words[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, words[5]);
        settings.put(StreamsConfig.POLL_MS_CONFIG, "50");
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), words[4]);
        // Who is started in its place takes its partitions at once; what it left open, under an id
        // that nobody uses again, is in the way until its time is up.
        settings.put(StreamsConfig.consumerPrefix("group.instance.id"), words[3]);
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "500");
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "2000");
        settings.put(StreamsConfig.producerPrefix("retry.backoff.ms"), "20");
        KafkaStreams streams = new KafkaStreams(topology(words[1], words[2]), settings);
        streams.setStateListener(
            (now, before) -> {
                if (now == KafkaStreams.State.ERROR) {
                    Runtime.getRuntime().halt(1);
                }
            });
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        // Else who ends last, and is in a rebalance, waits for those that have ended before.
        streams.close(
            CloseOptions.groupMembershipOperation(
                CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
    }

    private static Topology topology(String source, String outputs) {
        var bytes = Serdes.ByteArray();
        Topology topology = new Topology();
        topology.addSource("numbers", bytes.deserializer(), bytes.deserializer(), source);
        topology.addProcessor("count", Count::new, "numbers");
        topology.addStateStore(
            Stores.keyValueStoreBuilder(
                Stores.inMemoryKeyValueStore(SEEN), Serdes.Integer(), Serdes.Long()),
            "count");
        StreamPartitioner<byte[], byte[]> place =
            (topic, key, value, partitions) -> {
                int number = Integer.parseInt(new String(value, StandardCharsets.UTF_8));
                return Optional.of(Set.of(number % partitions));
            };
        for (String output : outputs.split(",")) {
            String topic = output.split(":")[0];
            topology.addSink(
                topic, topic, bytes.serializer(), bytes.serializer(), place, "count");
        }
        return topology;
    }
}
