import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.lock.LockProvider;
import org.apache.hudi.storage.StorageConfiguration;

/** A JVM that takes and gives back a lock of Hudi: PROVIDER NAME=VALUE..., then lines "acquire MILLISECONDS" or "release". */
class HudiPeer {
    public static void main(String[] args) throws Exception {
        Properties options = new Properties();
        for (int i = 1; i < args.length; i++) {
            int split = args[i].indexOf('=');
            options.setProperty(args[i].substring(0, split), args[i].substring(split + 1));
        }
        LockProvider<?> lock = (LockProvider<?>) Class.forName(args[0])
            .getConstructor(LockConfiguration.class, StorageConfiguration.class)
            .newInstance(new LockConfiguration(options), null);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            if (order.startsWith("acquire ")) {
                boolean held;
                try {
                    held = lock.tryLock(Long.parseLong(order.substring(8)), TimeUnit.MILLISECONDS);
                } catch (RuntimeException e) { // this is how it says that the time is up
                    held = false;
                }
                System.out.println(held);
            } else {
                lock.unlock();
                System.out.println("released");
            }
        }
        lock.close();
        System.exit(0);
    }
}
