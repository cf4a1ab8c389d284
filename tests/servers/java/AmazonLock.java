import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;

/**
 * Amazon's DynamoDB lock client, used as Hudi's provider uses it, told by lines on its input: acquire, release.
 * Arguments: endpoint, region, table, key, lease in milliseconds, and whether the item is deleted at release.
 */
public final class AmazonLock {
    public static void main(String[] arguments) throws Exception {
        DynamoDbClient dynamo = DynamoDbClient.builder()
            .endpointOverride(URI.create(arguments[0])).region(Region.of(arguments[1])).build();
        long leaseMs = Long.parseLong(arguments[4]);
        AmazonDynamoDBLockClient locks = new AmazonDynamoDBLockClient(
            AmazonDynamoDBLockClientOptions.builder(dynamo, arguments[2])
                .withPartitionKeyName("key").withTimeUnit(TimeUnit.MILLISECONDS).withLeaseDuration(leaseMs)
                .withHeartbeatPeriod(leaseMs / 3).withCreateHeartbeatBackgroundThread(true).build());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        Optional<LockItem> held = Optional.empty();
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            if (command.equals("acquire")) {
                held = locks.tryAcquireLock(AcquireLockOptions.builder(arguments[3])
                    .withTimeUnit(TimeUnit.MILLISECONDS).withRefreshPeriod(50L)
                    .withAdditionalTimeToWaitForLock(500L)
                    .withDeleteLockOnRelease(Boolean.parseBoolean(arguments[5])).build());
                System.out.println(held.isPresent() ? "held" : "busy");
            } else {
                System.out.println(held.isPresent() && locks.releaseLock(held.get()) ? "released" : "lost");
            }
        }
        System.exit(0);
    }
}
