import java.io.File;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;

/** Asks Kafka's own classes (3.9 on) what they make of names, an emptied batch and a snapshot; answers line by line. */
public class FormatJudge {
    public static void main(String[] args) throws Exception {
        System.out.println("empty " + HexFormat.of().formatHex(empty()));
        for (String name : Files.readString(Path.of(args[0]), StandardCharsets.UTF_8).split("\n", -1)) {
            System.out.println("file " + offset(name));
            System.out.println("folder " + folder(name));
        }
        Map<Long, ProducerStateEntry> entries = new LinkedHashMap<>();
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(new File(args[1])))
            entries.put(entry.producerId(), entry);
        ProducerStateManager.writeSnapshot(new File(args[1] + ".again"), entries, true);
    }

    static byte[] empty() throws Exception {
        Class<?> batch = Class.forName("org.apache.kafka.common.record." + place() + "DefaultRecordBatch");
        for (Method method : batch.getDeclaredMethods()) {
            if (!method.getName().equals("writeEmptyHeader"))
                continue;
            ByteBuffer buffer = ByteBuffer.allocate(61);
            Object appendTime = null;
            for (Object type : method.getParameterTypes()[8].getEnumConstants())
                if (((Enum<?>) type).name().equals("LOG_APPEND_TIME"))
                    appendTime = type;
            method.invoke(null, buffer, (byte) 2, 7L, (short) 3, 40, 100L, 109L, 5, appendTime, 2000L, true, true);
            return buffer.array();
        }
        throw new IllegalStateException("no writeEmptyHeader");
    }

    static String place() {
        try {
            Class.forName("org.apache.kafka.common.record.DefaultRecordBatch");
            return "";
        } catch (ClassNotFoundException moved) {
            return "internal.";
        }
    }

    static String offset(String name) {
        try {
            Class<?> names = Class.forName("org.apache.kafka.storage.internals.log.LogFileUtils");
            return names.getMethod("offsetFromFileName", String.class).invoke(null, name).toString();
        } catch (ReflectiveOperationException refused) {
            return "none";
        }
    }

    static String folder(String name) throws Exception {
        Method parse;
        Object on = null;
        try {
            Class<?> log = Class.forName("kafka.log.LocalLog$");
            on = log.getField("MODULE$").get(null);
            parse = log.getMethod("parseTopicPartitionName", File.class);
        } catch (ClassNotFoundException moved) {
            parse = Class.forName("org.apache.kafka.storage.internals.log.LocalLog").getMethod("parseTopicPartitionName", File.class);
        }
        try {
            return parse.invoke(on, new File("/nowhere/" + name)).toString();
        } catch (java.lang.reflect.InvocationTargetException refused) {
            return "none";
        }
    }
}
