import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageSizeAccumulator;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads and writes messages with the classes that Apache Kafka generates from its schemas.
 *
 * <p>Each line of standard input is: request|response|data, api key, name, version, hex of the body, separated by
 * tabs; the key of data is -1. It is answered by the same line with the body decoded and encoded anew, and three more
 * fields: Kafka's JSON of the message by version, the version of the header before it (-1 for data), and the versions
 * that the message has. In place of these four stands {@code unsupported} where there is no such message or version,
 * and {@code error: ...} where it does not decode.
 */
public final class WireOracle {
    private static final List<String> CLASS_NAMES_OF_DATA = List.of(
            "org.apache.kafka.common.message.%s",
            "org.apache.kafka.common.message.%sData",
            "org.apache.kafka.coordinator.group.generated.%s",
            "org.apache.kafka.coordinator.transaction.generated.%s");

    private WireOracle() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        try (PrintStream out = new PrintStream(new BufferedOutputStream(System.out), false, StandardCharsets.UTF_8)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] fields = line.split("\t", -1);
                out.println(String.join("\t", fields[0], fields[1], fields[2], fields[3], answer(fields)));
            }
        }
    }

    private static String answer(String[] fields) {
        try {
            return answer(fields[0], Short.parseShort(fields[1]), fields[2], Short.parseShort(fields[3]), fields[4]);
        } catch (UnsupportedVersionException | ClassNotFoundException absent) {
            return "unsupported";
        } catch (InvocationTargetException failure) {
            return "error: " + failure.getCause();
        } catch (ReflectiveOperationException | RuntimeException failure) {
            return "error: " + failure;
        }
    }

    private static String answer(String kind, short key, String name, short version, String hex)
            throws ReflectiveOperationException {
        Message message;
        short headerVersion = -1;
        if (kind.equals("data")) {
            message = newData(name);
        } else {
            ApiMessageType api = ApiMessageType.fromApiKey(key);
            if (!api.name.equals(name)) {
                throw new IllegalArgumentException("API " + key + " is " + api.name);
            }
            boolean isRequest = kind.equals("request");
            message = isRequest ? api.newRequest() : api.newResponse();
            headerVersion = isRequest ? api.requestHeaderVersion(version) : api.responseHeaderVersion(version);
        }
        short lowest = message.lowestSupportedVersion();
        short highest = message.highestSupportedVersion();
        if (version < lowest || version > highest) {
            throw new UnsupportedVersionException(name + " has versions " + lowest + " to " + highest);
        }
        read(message, version, HexFormat.of().parseHex(hex));
        String encoded = HexFormat.of().formatHex(written(message, version));
        String versions = lowest == highest ? "" + lowest : lowest + "-" + highest;
        return String.join("\t", encoded, json(message, version, highest).toString(), "" + headerVersion, versions);
    }

    private static Message newData(String name) throws ReflectiveOperationException {
        for (String pattern : CLASS_NAMES_OF_DATA) {
            try {
                return (Message) Class.forName(String.format(pattern, name)).getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static void read(Message message, short version, byte[] body) {
        ByteBuffer buffer = ByteBuffer.wrap(body);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalArgumentException(buffer.remaining() + " bytes left over");
        }
    }

    private static byte[] written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        MessageSizeAccumulator size = new MessageSizeAccumulator();
        message.addSize(size, cache, version);
        ByteBuffer buffer = ByteBuffer.allocate(size.totalSize());
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes fewer written than counted");
        }
        return buffer.array();
    }

    /** The message as its own version shows it, and as the highest version that can carry it: that adds defaults. */
    private static ObjectNode json(Message message, short version, short highest) throws ReflectiveOperationException {
        ObjectNode shown = JsonNodeFactory.instance.objectNode();
        shown.set("" + version, json(message, version));
        for (short later = highest; later > version; later--) {
            try {
                return shown.set("" + later, json(message, later));
            } catch (InvocationTargetException notCarried) {
                continue;
            }
        }
        return shown;
    }

    /** Each generated class has its converter beside it; records are shown by their size alone. */
    private static JsonNode json(Message message, short version) throws ReflectiveOperationException {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        return (JsonNode) converter
                .getMethod("write", message.getClass(), short.class, boolean.class)
                .invoke(null, message, version, false);
    }
}
