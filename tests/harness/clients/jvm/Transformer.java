import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Reads numbers in a group and writes each to every output, exactly once, until its input ends. It
 * ends with an error where only another in its place can go on.
 *
 * <p>Its words are the bootstrap, the topic to read, which is the group too, the outputs as
 * topic:partitions with commas between, its name, and how many numbers a transaction has at most.
 */
public final class Transformer {
    private static final Duration POLL = Duration.ofMillis(50);

    private final AtomicBoolean ended = new AtomicBoolean();
    private final Map<String, Integer> outputs = new LinkedHashMap<>();
    private final String source;
    private final String name;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private int count;

    private Transformer(String[] words) {
        source = words[1];
        for (String output : words[2].split(",")) {
            String[] pair = output.split(":");
            outputs.put(pair[0], Integer.valueOf(pair[1]));
        }
        name = words[3];
        Properties writing = new Properties();
        writing.put("bootstrap.servers", words[0]);
        writing.put("transactional.id", name);
        writing.put("linger.ms", "1");
        writing.put("retry.backoff.ms", "20");
        var serializer = new ByteArraySerializer();
        producer = new KafkaProducer<>(writing, serializer, serializer);
        Properties reading = new Properties();
        reading.put("bootstrap.servers", words[0]);
        reading.put("group.id", source);
        // Who is started in its place takes its partitions at once.
        reading.put("group.instance.id", name);
        reading.put("isolation.level", "read_committed");
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("max.poll.records", words[4]);
        var deserializer = new ByteArrayDeserializer();
        consumer = new KafkaConsumer<>(reading, deserializer, deserializer);
    }

    public static void main(String[] words) {
        Transformer transformer = new Transformer(words);
        Thread listening = new Thread(transformer::listen);
        listening.setDaemon(true);
        listening.start();
        transformer.run();
    }

    private void listen() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        } finally {
            ended.set(true);
        }
    }

    private void run() {
        producer.initTransactions();
        consumer.subscribe(java.util.List.of(source));
        while (!ended.get()) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            if (!records.isEmpty()) {
                transform(records);
            }
        }
        consumer.close();
        producer.close();
    }

    private void transform(ConsumerRecords<byte[], byte[]> records) {
        try {
            write(records);
        } catch (KafkaException failure) {
            // Where it is fenced, or worse, this fails too.
            producer.abortTransaction();
            goBack();
        }
    }

    private void write(ConsumerRecords<byte[], byte[]> records) {
        count += 1;
        byte[] tag =
            (name + "/" + ProcessHandle.current().pid() + "/" + count)
                .getBytes(StandardCharsets.UTF_8);
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            int number = Integer.parseInt(new String(record.value(), StandardCharsets.UTF_8));
            outputs.forEach(
                (topic, partitions) ->
                    producer.send(
                        new ProducerRecord<>(topic, number % partitions, tag, record.value())));
            TopicPartition place = new TopicPartition(record.topic(), record.partition());
            offsets.put(place, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException again) {
                continue; // whether it is committed is not known yet
            }
        }
    }

    /** To what is committed: the inputs of a transaction that was aborted come again. */
    private void goBack() {
        Map<TopicPartition, OffsetAndMetadata> committed =
            consumer.committed(consumer.assignment());
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata known = committed.get(place);
            consumer.seek(place, known == null ? 0 : known.offset());
        }
    }
}
