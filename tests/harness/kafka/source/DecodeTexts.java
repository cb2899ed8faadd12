import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Reads bytes as hexadecimal digits, one text a line; prints what Java decodes, in UTF-16. */
public class DecodeTexts {
    public static void main(String[] arguments) throws Exception {
        var asked = new String(System.in.readAllBytes(), StandardCharsets.US_ASCII);
        var out = new StringBuilder();
        for (String line : asked.split("\n")) {
            String text = new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_8);
            out.append(HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_16BE)));
            out.append('\n');
        }
        System.out.print(out);
    }
}
