import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactional producers, one word at a time: each line of standard input is a producer's number,
 * a verb, and what that needs, with tabs between; the answer is a line, empty where it is done, else
 * the class of what went wrong and its message. Its word is the bootstrap.
 */
public final class Producers {
    private final Map<String, KafkaProducer<byte[], byte[]>> made = new HashMap<>();
    private final String bootstrap;

    private Producers(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] words) throws IOException, InterruptedException {
        Producers producers = new Producers(words[0]);
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(producers.done(line.split("\t")));
        }
    }

    private String done(String[] words) throws InterruptedException {
        try {
            act(words);
            return "";
        } catch (KafkaException failure) {
            return told(failure);
        } catch (ExecutionException failure) {
            return told(failure.getCause());
        }
    }

    private static String told(Throwable failure) {
        return failure.getClass().getSimpleName() + ": " + failure.getMessage();
    }

    private void act(String[] words) throws ExecutionException, InterruptedException {
        KafkaProducer<byte[], byte[]> producer = made.get(words[0]);
        switch (words[1]) {
            case "make" -> made.put(words[0], begun(words[2], words[3]));
            case "begin" -> producer.beginTransaction();
            case "produce" -> {
                byte[] value = words[3].getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(words[2], 0, null, value)).get();
            }
            case "offset" -> {
                TopicPartition place = new TopicPartition(words[2], 0);
                OffsetAndMetadata offset = new OffsetAndMetadata(Long.parseLong(words[3]));
                Properties settings = new Properties();
                settings.put("bootstrap.servers", bootstrap);
                settings.put("group.id", words[4]);
                var bytes = new ByteArrayDeserializer();
                try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
                    producer.sendOffsetsToTransaction(
                        Map.of(place, offset), consumer.groupMetadata());
                }
            }
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[1]);
        }
    }

    private KafkaProducer<byte[], byte[]> begun(String name, String timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", name);
        settings.put("transaction.timeout.ms", timeoutMs);
        var serializer = new ByteArraySerializer();
        var producer = new KafkaProducer<>(settings, serializer, serializer);
        producer.initTransactions();
        return producer;
    }
}
