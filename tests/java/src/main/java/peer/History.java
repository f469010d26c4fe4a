package peer;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.jute.Record;
import org.apache.zookeeper.ZooDefs.OpCode;
import org.apache.zookeeper.server.ByteBufferInputStream;
import org.apache.zookeeper.server.persistence.FileTxnLog;
import org.apache.zookeeper.server.persistence.TxnLog.TxnIterator;
import org.apache.zookeeper.txn.CreateContainerTxn;
import org.apache.zookeeper.txn.CreateTTLTxn;
import org.apache.zookeeper.txn.CreateTxn;
import org.apache.zookeeper.txn.DeleteTxn;
import org.apache.zookeeper.txn.MultiTxn;
import org.apache.zookeeper.txn.SetDataTxn;
import org.apache.zookeeper.txn.Txn;
import org.apache.zookeeper.txn.TxnHeader;

/**
 * The transaction logs of ZooKeeper servers as lines: zxid, milliseconds, session, what, path, data in base64, whether
 * ephemeral. One that was refused, or changed nothing here, is there as {@code none}.
 */
final class History {
    private History() {
    }

    static void run(final String[] arguments) throws IOException {
        for (int i = 1; i < arguments.length; i++) {
            read(new File(arguments[i]));
        }
    }

    private static void read(final File folder) throws IOException {
        try (TxnIterator log = new FileTxnLog(folder).read(0)) {
            do {
                TxnHeader header = log.getHeader();
                if (null == header) {
                    return;
                }
                List<String> lines = new ArrayList<>();
                if (OpCode.closeSession == header.getType()) {
                    lines.add("end\t\t\t0");
                } else if (!describe(header.getType(), log.getTxn(), lines) || lines.isEmpty()) {
                    lines.clear();
                    lines.add("none\t\t\t0");
                }
                for (String each : lines) {
                    System.out.printf(
                            "%d\t%d\t%x\t%s%n", header.getZxid(), header.getTime(), header.getClientId(), each);
                }
            } while (log.next());
        }
    }

    /** Gives whether it was carried out. */
    private static boolean describe(final int type, final Record txn, final List<String> lines) throws IOException {
        switch (type) {
            case OpCode.error:
                return false;
            case OpCode.create, OpCode.create2: {
                CreateTxn create = (CreateTxn) txn;
                lines.add(line("write", create.getPath(), create.getData(), create.getEphemeral()));
                return true;
            }
            case OpCode.createContainer:
                lines.add(line("write", ((CreateContainerTxn) txn).getPath(), null, false));
                return true;
            case OpCode.createTTL:
                lines.add(line("write", ((CreateTTLTxn) txn).getPath(), null, false));
                return true;
            case OpCode.setData: {
                SetDataTxn set = (SetDataTxn) txn;
                lines.add(line("set", set.getPath(), set.getData(), false));
                return true;
            }
            case OpCode.delete, OpCode.deleteContainer:
                lines.add(line("delete", ((DeleteTxn) txn).getPath(), null, false));
                return true;
            case OpCode.multi: {
                for (Txn each : ((MultiTxn) txn).getTxns()) {
                    if (!describe(each.getType(), part(each), lines)) {
                        return false;
                    }
                }
                return true;
            }
            default:
                return true;
        }
    }

    private static Record part(final Txn txn) throws IOException {
        Record result;
        switch (txn.getType()) {
            case OpCode.create, OpCode.create2 -> result = new CreateTxn();
            case OpCode.createContainer -> result = new CreateContainerTxn();
            case OpCode.createTTL -> result = new CreateTTLTxn();
            case OpCode.setData -> result = new SetDataTxn();
            case OpCode.delete, OpCode.deleteContainer -> result = new DeleteTxn();
            default -> {
                return null;
            }
        }
        ByteBufferInputStream.byteBuffer2Record(ByteBuffer.wrap(txn.getData()), result);
        return result;
    }

    private static String line(final String what, final String path, final byte[] data, final boolean ephemeral) {
        String text = null == data ? "" : Base64.getEncoder().encodeToString(data);
        return what + "\t" + path + "\t" + text + "\t" + (ephemeral ? 1 : 0);
    }
}
