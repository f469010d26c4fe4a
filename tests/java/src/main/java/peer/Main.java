package peer;

/** The Java side of the tests, one word for each part. */
public final class Main {
    private Main() {
    }

    public static void main(final String[] args) throws Exception {
        switch (args[0]) {
            case "agent" -> Agent.run(args[1]);
            case "history" -> History.run(args);
            case "operate" -> Operate.run(args);
            case "operations" -> Operations.run(args[1], args[2]);
            case "quartz" -> Quartz.run(args[1], args[2]);
            case "zones" -> Zones.run(args[1]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }
}
