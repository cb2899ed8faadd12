import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;

/** Reads topic names on the first line and a pattern on each other one; says which names match. */
public class MatchTopics {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String[] names = in.readLine().split(" ");
        var out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(matches(line, names)).append('\n');
        }
        System.out.print(out);
    }

    private static String matches(String text, String[] names) {
        try {
            Pattern pattern = Pattern.compile(text);
            var bits = new StringBuilder();
            for (String name : names) {
                bits.append(pattern.matcher(name).matches() ? '1' : '0');
            }
            return bits.toString();
        } catch (RuntimeException error) {
            return "refused";
        }
    }
}
