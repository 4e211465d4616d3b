// Members of the group kinds that only Kafka 4 has, kept alive until the end of stdin: two share consumers of "of-share",
// and two members of the streams group "of-streams", as the protocol has it, without the streams library (KIP-932, KIP-1071).
// Argument: bootstrap. Says what the broker says of them, one line each, tabs between the fields, and then READY.
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class NewerGroups {
    static final String SHARE = "of-share";
    static final String STREAMS = "of-streams";
    static final int RECORDS = 5;
    static final AtomicInteger DONE = new AtomicInteger();
    static String bootstrap;

    static Thread daemon(Runnable body) {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    static void share(String name, List<String> topics) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", SHARE);
        settings.put("client.id", name);
        KafkaShareConsumer<byte[], byte[]> consumer =
            new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(topics);
        while (true) {
            int count = consumer.poll(Duration.ofMillis(200)).count();
            if (count > 0) {
                consumer.commitSync(); // what was taken counts as done
                DONE.addAndGet(count);
            }
        }
    }

    static StreamsGroupHeartbeatRequestData beat(String member, int epoch, Map<String, List<Integer>> owned) {
        StreamsGroupHeartbeatRequestData data = new StreamsGroupHeartbeatRequestData()
            .setGroupId(STREAMS).setMemberId(member).setMemberEpoch(epoch);
        if (epoch == 0)
            data.setProcessId(member).setRebalanceTimeoutMs(60_000).setClientTags(List.of())
                .setTopology(new StreamsGroupHeartbeatRequestData.Topology().setEpoch(0).setSubtopologies(List.of(
                    new StreamsGroupHeartbeatRequestData.Subtopology().setSubtopologyId("0")
                        .setSourceTopics(List.of("t-a")))));
        if (epoch == 0 || owned != null) {
            List<StreamsGroupHeartbeatRequestData.TaskIds> active = new ArrayList<>();
            if (owned != null)
                owned.forEach((id, parts) -> active.add(
                    new StreamsGroupHeartbeatRequestData.TaskIds().setSubtopologyId(id).setPartitions(parts)));
            data.setActiveTasks(active).setStandbyTasks(List.of()).setWarmupTasks(List.of());
        }
        return data;
    }

    static void streams(String name) {
        String member = Uuid.randomUuid().toString();
        short version = ApiKeys.STREAMS_GROUP_HEARTBEAT.latestVersion(true);
        int port = Integer.parseInt(bootstrap.substring(bootstrap.indexOf(':') + 1));
        int epoch = 0;
        Map<String, List<Integer>> owned = null;
        try (Socket socket = new Socket("127.0.0.1", port)) {
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            DataInputStream in = new DataInputStream(socket.getInputStream());
            for (int number = 0; ; number++) {
                RequestHeader header = new RequestHeader(ApiKeys.STREAMS_GROUP_HEARTBEAT, version, name, number);
                ByteBuffer sent =
                    new StreamsGroupHeartbeatRequest(beat(member, epoch, owned), version).serializeWithHeader(header);
                out.writeInt(sent.remaining());
                out.write(sent.array(), sent.arrayOffset() + sent.position(), sent.remaining());
                byte[] got = new byte[in.readInt()];
                in.readFully(got);
                StreamsGroupHeartbeatResponseData answer = (StreamsGroupHeartbeatResponseData)
                    AbstractResponse.parseResponse(ByteBuffer.wrap(got), header).data();
                if (answer.errorCode() == 0) {
                    epoch = answer.memberEpoch();
                    if (answer.activeTasks() != null) {
                        owned = new HashMap<>();
                        for (StreamsGroupHeartbeatResponseData.TaskIds each : answer.activeTasks())
                            owned.put(each.subtopologyId(), each.partitions());
                    }
                }
                Thread.sleep(250);
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    /** RECORDS into each of the four partitions. */
    static void produce() {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String topic : List.of("t-a", "t-b"))
                for (int number = 0; number < 2 * RECORDS; number++)
                    producer.send(new ProducerRecord<>(topic, number % 2, null, new byte[10]));
        }
    }

    static void say(Object... fields) {
        List<String> words = new ArrayList<>();
        for (Object field : fields) words.add(String.valueOf(field));
        System.out.println(String.join("\t", words));
    }

    static String partitions(Collection<TopicPartition> all) {
        TreeSet<String> words = new TreeSet<>();
        for (TopicPartition each : all) words.add(each.topic() + ":" + each.partition());
        return String.join(",", words);
    }

    static String tasks(StreamsGroupMemberAssignment assignment) {
        TreeSet<String> words = new TreeSet<>();
        for (StreamsGroupMemberAssignment.TaskIds each : assignment.activeTasks())
            for (int partition : each.partitions()) words.add(each.subtopologyId() + ":" + partition);
        return String.join(",", words);
    }

    static boolean settled(Admin admin) throws Exception {
        try {
            ShareGroupDescription share = admin.describeShareGroups(List.of(SHARE)).all().get().get(SHARE);
            StreamsGroupDescription streams = admin.describeStreamsGroups(List.of(STREAMS)).all().get().get(STREAMS);
            boolean assigned = share.groupState() == GroupState.STABLE && share.members().size() == 2
                && share.groupEpoch() == share.targetAssignmentEpoch()
                && share.members().stream().allMatch(each -> !each.assignment().topicPartitions().isEmpty()
                    && each.memberEpoch() == share.groupEpoch())
                && streams.groupState() == GroupState.STABLE && streams.members().size() == 2
                && streams.members().stream().allMatch(each -> !tasks(each.assignment()).isEmpty());
            Map<TopicPartition, SharePartitionOffsetInfo> starts = starts(admin);
            return assigned && starts.size() == 4
                && starts.values().stream().allMatch(each -> each != null && each.startOffset() == RECORDS);
        } catch (ExecutionException error) { // the coordinator is still loading, or does not know the group yet
            return false;
        }
    }

    static Map<TopicPartition, SharePartitionOffsetInfo> starts(Admin admin) throws Exception {
        return admin.listShareGroupOffsets(Map.of(SHARE, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(SHARE).get();
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic("t-a", 2, (short) 1), new NewTopic("t-b", 2, (short) 1))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, SHARE);
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
            daemon(() -> share("share-one", List.of("t-a")));
            daemon(() -> share("share-two", List.of("t-a", "t-b")));
            daemon(() -> streams("streams-one"));
            daemon(() -> streams("streams-two"));
            // The start of a share partition is written when the next records are acknowledged.
            for (int round = 1; round <= 2; round++) {
                produce();
                while (DONE.get() < 4 * RECORDS * round) Thread.sleep(50);
            }
            while (!settled(admin)) Thread.sleep(200);
            for (GroupListing each : admin.listGroups().all().get())
                say("group", each.groupId(), each.type().get(), each.protocol(), each.groupState().get());
            ShareGroupDescription share = admin.describeShareGroups(List.of(SHARE)).all().get().get(SHARE);
            say("epochs", SHARE, share.groupEpoch(), share.targetAssignmentEpoch());
            for (ShareMemberDescription each : share.members())
                say("member", SHARE, each.consumerId(), each.clientId(), each.host(), each.memberEpoch(),
                    partitions(each.assignment().topicPartitions()));
            StreamsGroupDescription streams = admin.describeStreamsGroups(List.of(STREAMS)).all().get().get(STREAMS);
            say("epochs", STREAMS, streams.groupEpoch(), streams.targetAssignmentEpoch());
            for (StreamsGroupMemberDescription each : streams.members())
                say("member", STREAMS, each.memberId(), each.clientId(), each.clientHost(), each.memberEpoch(),
                    tasks(each.assignment()));
            for (String topic : List.of("t-a", "t-b"))
                say("topic", topic, admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId());
            starts(admin).forEach((at, info) -> say("start", at.topic(), at.partition(), info.startOffset()));
            System.out.println("READY");
            System.out.flush();
            while (System.in.read() >= 0) { }
            Runtime.getRuntime().halt(0);
        }
    }
}
