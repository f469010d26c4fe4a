package peer;

import com.google.gson.Gson;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.shardingsphere.elasticjob.infra.pojo.JobConfigurationPOJO;
import org.apache.shardingsphere.elasticjob.lite.lifecycle.api.JobAPIFactory;
import org.apache.shardingsphere.elasticjob.lite.lifecycle.api.JobConfigurationAPI;

/** Java's whole operation API: operations SERVERS FILE, a line each: NAMESPACE OPERATION JOB VALUE, - for null. */
final class Operations {
    private Operations() {
    }

    static void run(final String servers, final String file) throws Exception {
        for (String line : Files.readAllLines(Path.of(file))) {
            String[] words = line.split(" ", 4);
            long start = System.nanoTime();
            Object result = carryOut(servers, words[0], words[1], given(words[2]), given(words[3]));
            System.out.println("took " + (System.nanoTime() - start) / 1_000_000);
            System.out.println("result " + new Gson().toJson(result));
        }
        System.exit(0);
    }

    private static String given(final String word) {
        return "-".equals(word) ? null : word;
    }

    private static Object carryOut(
            final String servers, final String namespace, final String operation, final String job, final String value)
            throws Exception {
        switch (operation) {
            case "trigger" -> JobAPIFactory.createJobOperateAPI(servers, namespace, null).trigger(job);
            case "disable" -> JobAPIFactory.createJobOperateAPI(servers, namespace, null).disable(job, value);
            case "enable" -> JobAPIFactory.createJobOperateAPI(servers, namespace, null).enable(job, value);
            case "shutdown" -> JobAPIFactory.createJobOperateAPI(servers, namespace, null).shutdown(job, value);
            case "remove" -> JobAPIFactory.createJobOperateAPI(servers, namespace, null).remove(job, value);
            case "dump" -> {
                return JobAPIFactory.createJobOperateAPI(servers, namespace, null)
                        .dump(job, "127.0.0.1", Integer.parseInt(value));
            }
            case "disable-item" ->
                JobAPIFactory.createShardingOperateAPI(servers, namespace, null).disable(job, value);
            case "enable-item" -> JobAPIFactory.createShardingOperateAPI(servers, namespace, null).enable(job, value);
            case "remove-configuration" ->
                JobAPIFactory.createJobConfigurationAPI(servers, namespace, null).removeJobConfiguration(job);
            case "cron" -> {
                JobConfigurationAPI api = JobAPIFactory.createJobConfigurationAPI(servers, namespace, null);
                JobConfigurationPOJO stored = api.getJobConfiguration(job);
                stored.setCron(value);
                api.updateJobConfiguration(stored);
            }
            case "jobs-count" -> {
                return JobAPIFactory.createJobStatisticsAPI(servers, namespace, null).getJobsTotalCount();
            }
            case "jobs" -> {
                return JobAPIFactory.createJobStatisticsAPI(servers, namespace, null).getAllJobsBriefInfo();
            }
            case "job" -> {
                return JobAPIFactory.createJobStatisticsAPI(servers, namespace, null).getJobBriefInfo(job);
            }
            case "jobs-on" -> {
                return JobAPIFactory.createJobStatisticsAPI(servers, namespace, null).getJobsBriefInfo(value);
            }
            case "servers-count" -> {
                return JobAPIFactory.createServerStatisticsAPI(servers, namespace, null).getServersTotalCount();
            }
            case "servers" -> {
                return JobAPIFactory.createServerStatisticsAPI(servers, namespace, null).getAllServersBriefInfo();
            }
            case "items" -> {
                return JobAPIFactory.createShardingStatisticsAPI(servers, namespace, null).getShardingInfo(job);
            }
            default -> throw new IllegalArgumentException(operation);
        }
        return "done";
    }
}
