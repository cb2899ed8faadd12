import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

/**
 * Where Kafka puts replicas, as lines: brokers (one letter each, its rack; '-' for none), replicas,
 * fixed start index, first partition, and the brokers of each partition, a digit each.
 */
public class KafkaAssignments {
    private static final String[] CLUSTERS = {
        "---", "aaa", "aab", "abc", "baa",
        "----", "aabb", "abab", "aaab", "abcd", "cbba",
        "-----", "aabbc", "abcab", "aaaab", "abcde",
        "------", "aabbcc", "abcabc", "aaabbc", "abbbbb",
        "-------", "aabbccc", "abcabca", "aaaabbc", "abcdefg",
    };

    public static void main(String[] arguments) {
        for (String cluster : CLUSTERS) {
            int brokers = cluster.length();
            for (int replicas = 1; replicas <= Math.min(5, brokers); replicas++) {
                for (int start : new int[] {0, 1, brokers - 1}) {
                    print(cluster, replicas, start, 0, 2 * brokers + 1);
                    print(cluster, replicas, start, brokers, 2);
                    print(cluster, replicas, start, brokers + 1, brokers + 1);
                }
            }
        }
    }

    private static void print(String cluster, int replicas, int start, int first, int count) {
        Map<Integer, List<Integer>> placed = AdminUtils.assignReplicasToBrokers(
            brokers(cluster), count, replicas, start, first);
        String rows = new TreeMap<>(placed).values().stream()
            .map(row -> row.stream().map(String::valueOf).collect(Collectors.joining()))
            .collect(Collectors.joining(" "));
        System.out.println(cluster + "," + replicas + "," + start + "," + first + "," + rows);
    }

    private static List<BrokerMetadata> brokers(String cluster) {
        List<BrokerMetadata> found = new ArrayList<>();
        for (int id = 0; id < cluster.length(); id++) {
            String rack = cluster.substring(id, id + 1);
            found.add(new BrokerMetadata(id, rack.equals("-") ? Optional.empty() : Optional.of(rack)));
        }
        return found;
    }
}
