// ZooKeeper in one process for a broker before 3.0, on loopback. Lines "path<TAB>data" on stdin become znodes with
// all their parents; an empty line asks for READY; the end of stdin ends the process.
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

public class Zk {
    static void put(ZooKeeper client, String path, byte[] data) throws Exception {
        int from = 1;
        while (true) {
            int slash = path.indexOf('/', from);
            boolean leaf = slash < 0;
            String node = leaf ? path : path.substring(0, slash);
            if (client.exists(node, false) == null) client.create(node, leaf ? data : null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            else if (leaf) client.setData(node, data, -1);
            if (leaf) return;
            from = slash + 1;
        }
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        File home = new File(args[1]);
        NIOServerCnxnFactory server = new NIOServerCnxnFactory();
        server.configure(new InetSocketAddress(InetAddress.getByAddress(new byte[]{127, 0, 0, 1}), port), 100);
        server.startup(new ZooKeeperServer(new File(home, "snapshots"), new File(home, "journal"), 500));
        ZooKeeper client = new ZooKeeper("127.0.0.1:" + port, 10000, event -> { });
        while (client.getState() != ZooKeeper.States.CONNECTED) Thread.sleep(5);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            int tab = line.indexOf('\t');
            if (tab > 0) put(client, line.substring(0, tab), line.substring(tab + 1).getBytes(StandardCharsets.UTF_8));
            else { System.out.println("READY"); System.out.flush(); }
        }
        client.close();
        server.shutdown();
        System.exit(0);
    }
}
