import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/**
 * Cases of secured_cases.py by pulsar-admin, one after the other in one process.
 *
 * Reads from each line of standard input a name and the program's arguments, separated by tabs. Writes a line for each:
 * its name, the exit code, the seconds that it took, and what the program said, separated by tabs.
 */
public class Admin {
    static final Map<String, PulsarAdminTool> tools = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        call("setAllowSystemExit", new Class<?>[] {boolean.class}, false);
        PrintStream out = System.out;
        ByteArrayOutputStream heard = new ByteArrayOutputStream();
        System.setOut(new PrintStream(heard, true) {
            @Override
            public void close() { // as some commands do
                flush();
            }
        });
        System.setErr(System.out);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            String[] given = Arrays.copyOfRange(words, 1, words.length);
            heard.reset();
            long began = System.nanoTime();
            try {
                run(given);
            } catch (Throwable error) { // which ends the program with 1
                heard.writeBytes(error.toString().getBytes());
                call("exit", new Class<?>[] {int.class}, 1);
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            Object code = call("getLastExitCode", new Class<?>[0]);
            out.printf("%s\t%s\t%.2f\t%s%n", words[0], code, seconds, heard.toString().replaceAll("\\s+", " "));
        }
        out.flush();
        Runtime.getRuntime().halt(0); // threads that did not end must not keep the test waiting
    }

    /** As `PulsarAdminTool.execute` does, but with one tool for each file of settings: making it takes seconds. */
    static void run(String[] given) throws Exception {
        PulsarAdminTool tool = tools.get(given[0]);
        if (tool == null) {
            Properties settings = new Properties();
            try (FileInputStream file = new FileInputStream(given[0])) {
                settings.load(file);
            }
            tool = new PulsarAdminTool(settings);
            tools.put(given[0], tool);
        }
        Method run = PulsarAdminTool.class.getDeclaredMethod("run", String[].class);
        run.setAccessible(true);
        Object isDone = run.invoke(tool, (Object) Arrays.copyOfRange(given, 1, given.length));
        call("exit", new Class<?>[] {int.class}, (boolean) isDone ? 0 : 1);
    }

    /** The program's own ways to be tested, which are not public. */
    static Object call(String name, Class<?>[] types, Object... values) throws Exception {
        Method method = PulsarAdminTool.class.getDeclaredMethod(name, types);
        method.setAccessible(true);
        return method.invoke(null, values);
    }
}
