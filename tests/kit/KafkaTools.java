import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command-line tools one after the other in one process: starting a JVM for each takes far longer
 * than most of them do.
 *
 * <p>A request on standard input is the number of arguments, each argument (the first is the main class), and what the
 * tool is to read; an answer on standard output is the exit status, what the tool wrote, and what it wrote to standard
 * error. A number is four bytes, a text its length and its bytes in UTF-8.
 *
 * <p>A tool ends by returning, by an exception, or by {@code Exit.exit}, which throws here. What it writes after that
 * does not count: many tools take the exception for a failure of their own. Its shutdown hooks run then, as they would.
 */
public final class KafkaTools {
    private static final Redirected OUT = new Redirected();
    private static final Redirected ERR = new Redirected();
    private static InputStream in = InputStream.nullInputStream();
    private static Integer status;
    private static final List<Runnable> HOOKS = new ArrayList<>();

    private KafkaTools() {}

    /** Goes to wherever the tool of the moment writes to; Scala keeps the first System.out that it sees for ever. */
    private static final class Redirected extends OutputStream {
        private ByteArrayOutputStream written = new ByteArrayOutputStream();
        private boolean open;

        @Override
        public synchronized void write(int b) {
            if (open) {
                written.write(b);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int count) {
            if (open) {
                written.write(bytes, from, count);
            }
        }

        synchronized void setOpen(boolean now) {
            open = now;
        }

        synchronized byte[] take() {
            byte[] all = written.toByteArray();
            written = new ByteArrayOutputStream();
            return all;
        }
    }

    private static final class Exited extends RuntimeException {
        Exited() {
            super("the tool has ended", null, false, false);
        }
    }

    private static void exit(int code, String message) {
        synchronized (HOOKS) {
            if (status == null) {
                status = code;
                OUT.setOpen(false);
                ERR.setOpen(false);
            }
        }
        throw new Exited();
    }

    public static void main(String[] arguments) throws IOException {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        System.setIn(new InputStream() {
            @Override
            public int read() throws IOException {
                return in.read();
            }

            @Override
            public int read(byte[] bytes, int from, int count) throws IOException {
                return in.read(bytes, from, count);
            }
        });
        Exit.setExitProcedure(KafkaTools::exit);
        Exit.setHaltProcedure(KafkaTools::exit);
        Exit.setShutdownHookAdder((name, hook) -> {
            synchronized (HOOKS) {
                HOOKS.add(hook);
            }
        });
        while (true) {
            String[] command;
            try {
                command = new String[requests.readInt()];
            } catch (EOFException end) {
                // Threads that tools have left behind must not keep the process.
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int index = 0; index < command.length; index++) {
                command[index] = new String(bytes(requests), StandardCharsets.UTF_8);
            }
            in = new ByteArrayInputStream(bytes(requests));
            int code = run(command);
            answers.writeInt(code);
            for (Redirected stream : List.of(OUT, ERR)) {
                byte[] written = stream.take();
                answers.writeInt(written.length);
                answers.write(written);
            }
            answers.flush();
        }
    }

    private static byte[] bytes(DataInputStream requests) throws IOException {
        return requests.readNBytes(requests.readInt());
    }

    private static int run(String[] command) {
        status = null;
        OUT.setOpen(true);
        ERR.setOpen(true);
        int otherwise = 0;
        String[] rest = new String[command.length - 1];
        System.arraycopy(command, 1, rest, 0, rest.length);
        try {
            Class.forName(command[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
        } catch (InvocationTargetException failure) {
            if (status == null) {
                failure.getCause().printStackTrace();
                otherwise = 1;
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            otherwise = 1;
        }
        OUT.setOpen(true);
        ERR.setOpen(true);
        List<Runnable> hooks;
        synchronized (HOOKS) {
            hooks = List.copyOf(HOOKS);
            HOOKS.clear();
        }
        for (Runnable hook : hooks) {
            try {
                hook.run();
            } catch (RuntimeException failure) {
                failure.printStackTrace();
            }
        }
        OUT.setOpen(false);
        ERR.setOpen(false);
        return status == null ? otherwise : status;
    }
}
