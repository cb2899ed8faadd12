import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Drives Kafka's own clients for the tests: produces one number after the other, and reads them
 * back, until its standard input ends. Standard output is one line of JSON with the outcome.
 */
public final class Steady {
  private static final Duration DEADLINE = Duration.ofSeconds(60);
  private static final String STRINGS = "org.apache.kafka.common.serialization.String";

  private final String bootstrap;
  private final String topic;
  private final int partitions;
  private final long everyMs;
  private final List<Integer> acked = new ArrayList<>();
  private final List<String> refused = new ArrayList<>();
  private final Map<Integer, List<Integer>> read = new TreeMap<>();
  private volatile int all = -1;

  private Steady(String[] words) {
    bootstrap = words[0];
    topic = words[1];
    partitions = Integer.parseInt(words[2]);
    everyMs = Long.parseLong(words[3]);
  }

  public static void main(String[] words) throws Exception {
    Steady steady = new Steady(words);
    Thread reader = new Thread(steady::consume);
    reader.start();
    steady.produce();
    reader.join();
    System.out.println(steady.outcome());
  }

  private Properties settings(String kind) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", bootstrap);
    settings.put("key." + kind, STRINGS + (kind.equals("serializer") ? "Serializer" : "Deserializer"));
    settings.put("value." + kind, settings.get("key." + kind));
    return settings;
  }

  private void produce() throws Exception {
    AtomicBoolean ended = new AtomicBoolean();
    Thread input = new Thread(() -> {
      try {
        System.in.readAllBytes();
      } catch (java.io.IOException failure) {
        throw new java.io.UncheckedIOException(failure);
      } finally {
        ended.set(true);
      }
    });
    input.start();
    try (var producer = new KafkaProducer<String, String>(settings("serializer"))) {
      for (int number = 0; !ended.get(); number++) {
        int told = number;
        var record = new ProducerRecord<String, String>(topic, number % partitions, null, "" + number);
        producer.send(record, (place, failure) -> {
          if (failure == null) {
            acked.add(told);
          } else {
            refused.add(failure.toString());
          }
        });
        Thread.sleep(everyMs);
      }
      producer.flush();
    }
    all = acked.size();
  }

  private void consume() {
    try (var consumer = new KafkaConsumer<String, String>(settings("deserializer"))) {
      var places = IntStream.range(0, partitions).mapToObj(n -> new TopicPartition(topic, n)).toList();
      consumer.assign(places);
      consumer.seekToBeginning(places);
      int count = 0;
      long late = 0;
      while (all < 0 || count < all) {
        for (var record : consumer.poll(Duration.ofMillis(50))) {
          read.computeIfAbsent(record.partition(), n -> new ArrayList<>())
              .add(Integer.parseInt(record.value()));
          count++;
        }
        if (all >= 0 && late == 0) {
          late = System.nanoTime() + DEADLINE.toNanos();
        }
        if (late != 0 && System.nanoTime() > late) {
          return; // what is missing, the test says
        }
      }
    }
  }

  private String outcome() {
    List<String> reasons = refused.stream().map(reason -> '"' + reason.replace('"', '\'') + '"').toList();
    List<String> rows = read.entrySet().stream()
        .map(row -> "\"" + row.getKey() + "\": " + row.getValue()).toList();
    return "{\"outcome\": {\"acked\": " + acked + ", \"refused\": " + reasons
        + ", \"read\": {" + String.join(", ", rows) + "}}}";
  }
}
