import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Readable;

/** Reads "class version hex" a line with Kafka's own generated classes and prints each message as JSON. */
public class RecordJudge {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            Class<?> type = Class.forName(words[0]);
            short version = Short.parseShort(words[1]);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            Object message = type.getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(bytes), version);
            Object json = Class.forName(words[0] + "JsonConverter")
                .getMethod("write", type, short.class).invoke(null, message, version);
            System.out.println(bytes.remaining() + " " + json);
        }
    }
}
