// Kafka nodes in one process, each started and stopped alone. Lines on stdin: "start ID FILE" (FILE: its properties) and
// "stop ID"; on stdout: "OK ID" or "ERR ID text", in the order in which they are done. The end of stdin ends the process at once.
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

public class Nodes {
    static Object module(String name) throws Exception {
        return Class.forName(name).getField("MODULE$").get(null);
    }

    // The constructors differ between versions in types that are all empty here.
    static Object argument(Class<?> type, Object config) throws Exception {
        if (type.isInstance(config)) return config;
        if (type.getName().endsWith(".Time")) {
            Class<?> time = Class.forName("org.apache.kafka.common.utils.Time");
            return time.getField("SYSTEM").get(null);
        }
        if (type.getName().equals("scala.Option")) return module("scala.None$");
        if (type == boolean.class) return false;
        return module("scala.collection.immutable.Nil$");
    }

    static Object node(Properties properties) throws Exception {
        Object config = Class.forName("kafka.server.KafkaConfig").getMethod("fromProps", Properties.class).invoke(null, properties);
        String kind = properties.containsKey("process.roles") ? "kafka.server.KafkaRaftServer" : "kafka.server.KafkaServer";
        Constructor<?> made = null;
        for (Constructor<?> one : Class.forName(kind).getConstructors())
            if (made == null || one.getParameterCount() > made.getParameterCount()) made = one;
        Object[] arguments = new Object[made.getParameterCount()];
        for (int place = 0; place < arguments.length; place++) arguments[place] = argument(made.getParameterTypes()[place], config);
        return made.newInstance(arguments);
    }

    static void tell(Object node, String what) throws Exception {
        node.getClass().getMethod(what).invoke(node);
    }

    public static void main(String[] args) throws Exception {
        Map<String, Object> running = new ConcurrentHashMap<>();
        ExecutorService pool = Executors.newCachedThreadPool();
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ", 3);
            pool.submit(() -> {
                String answer = "OK " + words[1];
                try {
                    if (words[0].equals("start")) {
                        Properties properties = new Properties();
                        try (FileInputStream file = new FileInputStream(words[2])) { properties.load(file); }
                        Object node = node(properties);
                        running.put(words[1], node);
                        tell(node, "startup");
                    } else {
                        Object node = running.remove(words[1]);
                        tell(node, "shutdown");
                        tell(node, "awaitShutdown");
                    }
                } catch (Throwable error) {
                    Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
                    cause.printStackTrace();
                    answer = "ERR " + words[1] + " " + String.valueOf(cause).replace('\n', ' ');
                }
                synchronized (answers) {
                    answers.println(answer);
                    answers.flush();
                }
            });
        }
        Runtime.getRuntime().halt(0);
    }
}
