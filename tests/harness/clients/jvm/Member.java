import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group: tells what happens to it, a line of JSON each, until standard input ends.
 * Each line of standard input has it commit what it read.
 *
 * <p>Its words are the bootstrap, the topic, the group, then settings as name=value.
 */
public final class Member implements ConsumerRebalanceListener {
    private final TreeSet<Integer> has = new TreeSet<>();
    private final AtomicBoolean ended = new AtomicBoolean();
    private final AtomicInteger asked = new AtomicInteger();

    private Member() {}

    public static void main(String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("group.id", words[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        for (String setting : List.of(words).subList(3, words.length)) {
            int at = setting.indexOf('=');
            settings.put(setting.substring(0, at), setting.substring(at + 1));
        }
        new Member().run(words[1], settings);
    }

    private void run(String topic, Properties settings) {
        new Thread(this::listen).start();
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(topic), this);
            while (!ended.get()) {
                for (var record : consumer.poll(Duration.ofMillis(50))) {
                    say("read", "[" + record.partition() + ", " + record.offset() + "]");
                }
                if (asked.get() > 0) {
                    consumer.commitSync();
                    asked.decrementAndGet();
                    say("committed", "true");
                }
            }
        }
    }

    private void listen() {
        try {
            for (int one = System.in.read(); one >= 0; one = System.in.read()) {
                if (one == '\n') {
                    asked.incrementAndGet();
                }
            }
        } catch (IOException failure) {
            throw new java.io.UncheckedIOException(failure);
        } finally {
            ended.set(true);
        }
    }

    private static void say(String what, String value) {
        System.out.println("{\"" + what + "\": " + value + "}");
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        places.forEach(place -> has.add(place.partition()));
        say("has", has.toString());
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        places.forEach(place -> has.remove(place.partition()));
        say("has", has.toString());
    }
}
