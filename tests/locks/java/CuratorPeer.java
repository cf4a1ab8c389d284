import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

/** A JVM that takes and gives back a Curator lock as it is told: HOSTS PATH, then lines "acquire MILLISECONDS" or "release". */
class CuratorPeer {
    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 4_000, 10_000, new RetryOneTime(100))) {
            client.start();
            client.blockUntilConnected();
            InterProcessMutex lock = new InterProcessMutex(client, args[1]);
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            for (String order = orders.readLine(); order != null; order = orders.readLine()) {
                if (order.startsWith("acquire ")) {
                    System.out.println(lock.acquire(Long.parseLong(order.substring(8)), TimeUnit.MILLISECONDS));
                } else {
                    lock.release();
                    System.out.println("released");
                }
            }
        }
    }
}
