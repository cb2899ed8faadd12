import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Kafka's own tables of settings as JSON. Its input is JSON, too: {table: {name: [value, ...]}};
 * "taken" holds those of the values that Kafka takes.
 */
public class KafkaSettings {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Map<?, ?> asked = JSON.readValue(System.in, Map.class);
        Map<String, Object> told = new TreeMap<>();
        told.put("topic", rows(LogConfig.configDefCopy(), asked.get("topic")));
        told.put("broker", rows(AbstractKafkaConfig.CONFIG_DEF, asked.get("broker")));
        told.put("group", rows(GroupConfig.CONFIG_DEF, asked.get("group")));
        told.put("client-metrics", rows(ClientMetricsConfigs.configDef(), null));
        told.put("group-synonyms", groupSynonyms());
        told.put("dynamic", DynamicBrokerConfig.dynamicConfigUpdateModes());
        told.put("synonyms", synonyms());
        System.out.println(JSON.writeValueAsString(told));
    }

    private static Map<String, Object> rows(ConfigDef table, Object asked) {
        Map<?, ?> values = asked == null ? Map.of() : (Map<?, ?>) asked;
        Map<String, Object> rows = new TreeMap<>();
        for (ConfigDef.ConfigKey key : table.configKeys().values()) {
            if (key.internalConfig) {
                continue;
            }
            Object standard = key.hasDefault() ? key.defaultValue : null;
            List<?> tried = values.containsKey(key.name) ? (List<?>) values.get(key.name) : List.of();
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("type", key.type.toString());
            row.put("default", ConfigDef.convertToString(standard, key.type));
            row.put("rule", key.validator == null ? "" : key.validator.toString());
            row.put("taken", tried.stream().filter(value -> takes(key, (String) value)).toList());
            rows.put(key.name, row);
        }
        return rows;
    }

    private static boolean takes(ConfigDef.ConfigKey key, String value) {
        try {
            Object parsed = ConfigDef.parseType(key.name, value, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(key.name, parsed);
            }
            return true;
        } catch (ConfigException refused) {
            return false;
        }
    }

    private static Map<String, String> groupSynonyms() {
        Map<String, String> found = new TreeMap<>();
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach(
            (group, broker) -> broker.ifPresent(name -> found.put(group, name)));
        return found;
    }

    private static Map<String, List<String>> synonyms() {
        Map<String, List<String>> found = new TreeMap<>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach(
            (topic, broker) -> found.put(topic, broker.stream().map(ConfigSynonym::name).toList()));
        return found;
    }
}
