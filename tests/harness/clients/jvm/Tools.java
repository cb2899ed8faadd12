import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's console tools one after the other in one process, as their scripts would.
 *
 * <p>A call on standard input is the number of words, then the words: the main class and its
 * arguments; then what the tool reads from its own standard input. The answer is the exit code, what was printed, and what went to standard error.
 */
public final class Tools {
    /** What a tool's exit becomes; it must not be taken for a failure of the tool. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;
    }

    /** Tools and their loggers keep the stream that they find first: it stays, its target changes. */
    private static final class Turned extends OutputStream {
        private ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int one) {
            target.write(one);
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int length) {
            target.write(bytes, from, length);
        }

        synchronized byte[] taken() {
            byte[] all = target.toByteArray();
            target = new ByteArrayOutputStream();
            return all;
        }
    }

    private static final Turned OUT = new Turned();
    private static final Turned ERR = new Turned();
    /** What a tool leaves for the end of its JVM: a producer sends its last records then. */
    private static final List<Runnable> HOOKS = new ArrayList<>();
    private static Integer code;
    private static byte[][] said;

    private Tools() {}

    public static void main(String[] none) throws IOException {
        DataInputStream calls = new DataInputStream(new FileInputStream(FileDescriptor.in));
        DataOutputStream answers =
            new DataOutputStream(new FileOutputStream(FileDescriptor.out));
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> ended(status));
        Exit.setHaltProcedure((status, message) -> ended(status));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        while (true) {
            String[] words;
            try {
                words = new String[calls.readInt()];
            } catch (EOFException last) {
                return;
            }
            for (int at = 0; at < words.length; at++) {
                words[at] = new String(calls.readNBytes(calls.readInt()), StandardCharsets.UTF_8);
            }
            System.setIn(new ByteArrayInputStream(calls.readNBytes(calls.readInt())));
            run(words);
            answers.writeInt(code);
            for (byte[] one : said) {
                answers.writeInt(one.length);
                answers.write(one);
            }
            answers.flush();
        }
    }

    private static void ended(int status) {
        end(status);
        throw new Ended();
    }

    /** The first end is the tool's: what it says of our way to leave it is not. */
    private static void end(int status) {
        System.out.flush();
        System.err.flush();
        if (code == null) {
            code = status;
            said = new byte[][] {OUT.taken(), ERR.taken()};
        }
    }

    private static void run(String[] words) {
        String[] arguments = new String[words.length - 1];
        System.arraycopy(words, 1, arguments, 0, arguments.length);
        code = null;
        OUT.taken();
        ERR.taken();
        try {
            Class.forName(words[0])
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments);
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Ended)) {
                failed.getCause().printStackTrace();
                end(1);
            }
        } catch (ReflectiveOperationException unknown) {
            unknown.printStackTrace();
            end(1);
        }
        end(0);
        HOOKS.forEach(Runnable::run);
        HOOKS.clear();
    }
}
