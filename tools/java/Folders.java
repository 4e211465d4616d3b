// An agent for Kafka's own unit tests: keeps a copy of each folder that a test lets a log load, of each that a log has
// closed, and of each that a cleaner is about to clean, with what the loader was told (facts.properties). Its argument is the
// folder that gets the copies.
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.matcher.ElementMatchers;

public class Folders {
    static final int EACH_TEST = Integer.getInteger("folders.each", 12);
    static final AtomicInteger kept = new AtomicInteger();
    static final Map<String, AtomicInteger> ofTest = new ConcurrentHashMap<>();
    static Path out;

    public static void premain(String folder, Instrumentation instrumentation) {
        out = Paths.get(folder);
        String[] packages = {"kafka.log.", "org.apache.kafka.storage.internals.log."};
        AgentBuilder agent = new AgentBuilder.Default().disableClassFormatChanges()
            .with(AgentBuilder.RedefinitionStrategy.DISABLED);
        for (String name : packages)
            agent = agent
                .type(ElementMatchers.named(name + "LogLoader")).transform((builder, type, loader, module, domain) ->
                    builder.visit(Advice.to(Loads.class).on(ElementMatchers.named("load").and(ElementMatchers.takesArguments(0)))))
                .type(ElementMatchers.named(name + "Log")).transform((builder, type, loader, module, domain) ->
                    builder.visit(Advice.to(Loads.class).on(ElementMatchers.named("loadSegments").and(ElementMatchers.takesArguments(0))))
                        .visit(Advice.to(Closed.class).on(ElementMatchers.named("close").and(ElementMatchers.takesArguments(0)))))
                .type(ElementMatchers.named(name + "UnifiedLog")).transform((builder, type, loader, module, domain) ->
                    builder.visit(Advice.to(Closed.class).on(ElementMatchers.named("close").and(ElementMatchers.takesArguments(0)))))
                .type(ElementMatchers.named(name + "Cleaner")).transform((builder, type, loader, module, domain) ->
                    builder.visit(Advice.to(Cleans.class).on(ElementMatchers.named("doClean").or(ElementMatchers.named("cleanSegments")))));
        agent.installOn(instrumentation);
    }

    public static class Loads {
        @Advice.OnMethodEnter public static void before(@Advice.This Object loader) { Folders.keep("load", loader); }
    }
    public static class Closed {
        @Advice.OnMethodExit public static void after(@Advice.This Object log) { Folders.keep("close", log); }
    }

    public static class Cleans {
        @Advice.OnMethodEnter public static void before(@Advice.Argument(0) Object log) { Folders.keep("clean", log); }
    }

    /** A field or the answer of a method without arguments; null if there is neither. */
    static Object get(Object of, String name) {
        for (Class<?> type = of == null ? null : of.getClass(); type != null; type = type.getSuperclass()) {
            try {
                Method method = type.getDeclaredMethod(name);
                method.setAccessible(true);
                return method.invoke(of);
            } catch (ReflectiveOperationException | RuntimeException absent) {
                try {
                    Field field = type.getDeclaredField(name);
                    field.setAccessible(true);
                    return field.get(of);
                } catch (ReflectiveOperationException | RuntimeException neither) { continue; }
            }
        }
        return null;
    }

    /** The test that is running, by the stack of this thread, else of the main one. */
    static String test() {
        String found = of(Thread.currentThread().getStackTrace());
        if (found != null) return found;
        for (Map.Entry<Thread, StackTraceElement[]> one : Thread.getAllStackTraces().entrySet())
            if (one.getKey().getName().equals("main") && of(one.getValue()) != null) return of(one.getValue());
        return "unknown";
    }
    static String of(StackTraceElement[] stack) {
        String found = null;
        for (StackTraceElement one : stack)
            if (one.getClassName().matches(".*kafka.*Test(\\$.*)?"))
                found = one.getClassName().replaceAll("\\$.*|.*\\.", "") + "." + one.getMethodName();
        return found;
    }

    public static void keep(String kind, Object of) {
        try {
            boolean loads = kind.equals("load");
            if (get(of, "log") != null) of = get(of, "log");  // of a log to clean
            File dir = (File) get(of, "dir");
            String test = test();
            if (dir == null || !dir.isDirectory()
                || ofTest.computeIfAbsent(kind + test, name -> new AtomicInteger()).incrementAndGet() > EACH_TEST) return;
            boolean early = of.getClass().getName().equals("kafka.log.Log");
            Properties facts = new Properties();
            facts.put("test", test);
            facts.put("clean", String.valueOf(early ? new File(dir.getParentFile(), ".kafka_cleanshutdown").exists() : get(of, "hadCleanShutdown")));
            facts.put("recovery_point", String.valueOf(get(of, early || !loads ? "recoveryPoint" : "recoveryPointCheckpoint")));
            facts.put("log_start", String.valueOf(get(of, early || !loads ? "logStartOffset" : "logStartOffsetCheckpoint")));
            facts.put("log_end", String.valueOf(loads ? -1 : get(of, "logEndOffset")));
            facts.put("remote", String.valueOf(get(of, "isRemoteLogEnabled")));
            facts.put("now", String.valueOf(get(get(of, "time"), "milliseconds")));
            Object config = get(of, "config"), values = get(config, "values");
            if (values instanceof Map)
                for (Map.Entry<?, ?> one : ((Map<?, ?>) values).entrySet()) facts.put("config." + one.getKey(), String.valueOf(one.getValue()));
            facts.put("config.segment.bytes", String.valueOf(get(config, "segmentSize")));
            Path target = out.resolve(String.format("%s-%05d", kind, kept.incrementAndGet()));
            copy(dir.toPath(), target.resolve("folder"));
            try (OutputStream file = Files.newOutputStream(target.resolve("facts.properties"))) { facts.store(file, null); }
        } catch (Throwable error) { error.printStackTrace(); }
    }

    /** Files with their times; zeros stay holes. */
    static void copy(Path from, Path to) throws IOException {
        Files.createDirectories(to);
        byte[] zeros = new byte[1 << 16];
        try (DirectoryStream<Path> files = Files.newDirectoryStream(from)) {
            for (Path one : files) {
                if (!Files.isRegularFile(one)) continue;
                try (RandomAccessFile in = new RandomAccessFile(one.toFile(), "r");
                     RandomAccessFile made = new RandomAccessFile(to.resolve(one.getFileName()).toFile(), "rw")) {
                    byte[] block = new byte[zeros.length];
                    made.setLength(in.length());
                    for (int size; (size = in.read(block)) > 0; )
                        if (Arrays.equals(block, 0, size, zeros, 0, size)) made.skipBytes(size); else made.write(block, 0, size);
                }
                Files.setLastModifiedTime(to.resolve(one.getFileName()), Files.getLastModifiedTime(one));
            }
        }
    }
}
