import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools, unchanged, in one warm JVM: a line names a main class, what stands on stdin and the
 * arguments, each in base64 and apart by spaces ("-" is empty); the answer is the exit code, stdout and stderr.
 * The first exit ends a tool: what its threads say afterwards is not heard.
 */
public final class ToolServer {
    /** The tool's first exit. Some tools catch what is thrown to end them, and would tell of it. */
    private static volatile Integer exitCode;

    static final class Ended extends Error {
        Ended(int code) {
            super(null, null, false, false);
            if (exitCode == null)
                exitCode = code;
        }
    }

    /** What tools and loggers hold for good; where it leads changes from tool to tool. */
    static final class Switch extends OutputStream {
        private final ByteArrayOutputStream heard = new ByteArrayOutputStream();

        synchronized byte[] taken() {
            byte[] all = heard.toByteArray();
            heard.reset();
            return all;
        }

        @Override
        public synchronized void write(int one) {
            if (exitCode == null)
                heard.write(one);
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int count) {
            if (exitCode == null)
                heard.write(bytes, from, count);
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Switch out = new Switch(), err = new Switch();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        List<Runnable> hooks = new CopyOnWriteArrayList<>();
        Exit.setExitProcedure((code, message) -> { throw new Ended(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Ended(code); });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> words = new ArrayList<>();
            for (String word : line.split(" "))
                words.add(new String(bytes(word), StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(bytes(line.split(" ")[1])));
            hooks.clear();
            out.taken();
            err.taken();
            exitCode = null;
            int code = run(words.get(0), words.subList(2, words.size()).toArray(new String[0]));
            for (Runnable hook : hooks)
                hook.run();
            code = exitCode == null ? code : exitCode;
            answers.println(code + " " + text(out.taken()) + " " + text(err.taken()));
            answers.flush();
        }
        System.exit(0);
    }

    private static int run(String mainClass, String[] arguments) throws Exception {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failed) {
            if (exitCode == null)
                failed.getCause().printStackTrace();
            return 1;
        }
    }

    private static byte[] bytes(String word) {
        return word.equals("-") ? new byte[0] : Base64.getDecoder().decode(word);
    }

    private static String text(byte[] bytes) {
        return bytes.length == 0 ? "-" : Base64.getEncoder().encodeToString(bytes);
    }
}
