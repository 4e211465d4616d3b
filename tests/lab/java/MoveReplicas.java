import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.common.TopicPartitionReplica;

/** Asks broker 0 to move replicas to another log directory: bootstrap, directory, then topic and partition by turns. */
public class MoveReplicas {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", args[0]);
        Map<TopicPartitionReplica, String> moves = new HashMap<>();
        for (int place = 2; place < args.length; place += 2) {
            moves.put(new TopicPartitionReplica(args[place], Integer.parseInt(args[place + 1]), 0), args[1]);
        }
        try (AdminClient admin = AdminClient.create(settings)) {
            admin.alterReplicaLogDirs(moves).all().get();
        }
        System.out.println("MOVING");
    }
}
