import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

import com.upokecenter.cbor.CBORObject;
import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.coap.CoAP.Code;
import org.eclipse.californium.core.coap.Request;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.cose.AlgorithmID;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.util.Bytes;
import org.eclipse.californium.elements.util.StringUtil;
import org.eclipse.californium.oscore.ContextRederivation.PHASE;
import org.eclipse.californium.oscore.HashMapCtxDB;
import org.eclipse.californium.oscore.OSCoreCoapStackFactory;
import org.eclipse.californium.oscore.OSCoreCtx;

/**
 * Californium as a server or a client of OSCORE: the words of interop/src/objects.rs.
 *
 * <pre>
 * oscore-server CONTEXT HOST PORT
 * oscore-client CONTEXT METHOD URI [PAYLOAD]
 * oscore-client CONTEXT observe URI COUNT
 * oscore-client CONTEXT twice URI
 * version
 * </pre>
 *
 * CONTEXT is a file as libcoap reads it. Californium keeps the number of the next request in memory only, and leaves it
 * to the application to go on behind it after a restart: here CONTEXT.next says where. Two lines more than libcoap has:
 * "rederivation" takes part in appendix B.2 of RFC 8613, "lost" begins it.
 */
public final class Peer {
    /** RFC 9175, section 2.2.1; it has no name for it. */
    private static final int ECHO = 252;
    private static final int REPLAY_WINDOW = 32;
    private static final int MAX_UNFRAGMENTED_SIZE = 4096;
    /** No life of this program uses more numbers. */
    private static final int LEASE = 100;

    static {
        CoapConfig.register();
        Configuration.createStandardWithoutFile();
    }

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "version":
                Things.sayVersion(OSCoreCtx.class);
                break;
            case "oscore-server":
                serve(words);
                break;
            case "oscore-client":
                ask(words);
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        System.exit(0);
    }

    private static OSCoreCtx context(boolean client, String file) throws Exception {
        Map<String, String> values = new HashMap<>();
        for (String line : Files.readAllLines(Path.of(file))) {
            String[] words = line.split(",");
            values.put(words[0], words[2].replace("\"", ""));
        }
        AlgorithmID algorithm = AlgorithmID.FromCBOR(CBORObject.FromObject(Integer.parseInt(values.get("aead_alg"))));
        OSCoreCtx context = new OSCoreCtx(bytes(values, "master_secret"), client, algorithm,
                bytes(values, "sender_id"), bytes(values, "recipient_id"), AlgorithmID.HKDF_HMAC_SHA_256, REPLAY_WINDOW,
                bytes(values, "master_salt"), bytes(values, "id_context"), MAX_UNFRAGMENTED_SIZE);
        Path next = Path.of(file + ".next");
        int first = Files.exists(next) ? Integer.parseInt(Files.readString(next)) : 0;
        Files.writeString(next, String.valueOf(first + LEASE));
        context.setSenderSeq(first);
        if (values.containsKey("rederivation")) {
            context.setContextRederivationEnabled(true);
        }
        if (values.containsKey("lost")) {
            context.setContextRederivationPhase(client ? PHASE.CLIENT_INITIATE : PHASE.SERVER_INITIATE);
        }
        return context;
    }

    private static byte[] bytes(Map<String, String> values, String name) {
        String hex = values.get(name);
        return hex == null ? null : StringUtil.hex2ByteArray(hex);
    }

    private static void serve(String[] words) throws Exception {
        HashMapCtxDB contexts = new HashMapCtxDB();
        contexts.addContext(context(false, words[1]));
        OSCoreCoapStackFactory.useAsDefault(contexts);
        InetSocketAddress address = new InetSocketAddress(words[2], Integer.parseInt(words[3]));
        Things.serve(CoapEndpoint.builder().setInetSocketAddress(address).build());
    }

    private static void ask(String[] words) throws Exception {
        String method = words[2];
        String uri = words[3];
        HashMapCtxDB contexts = new HashMapCtxDB();
        contexts.addContext(uri, context(true, words[1]));
        OSCoreCoapStackFactory.useAsDefault(contexts);
        CoapClient client = new CoapClient(uri);
        client.setTimeout(20000L);
        if (method.equals("twice")) {
            for (int time = 0; time < 2; time++) {
                Request request = new Request(Code.GET);
                request.getOptions().setOscore(Bytes.EMPTY);
                Things.say(Things.text(Things.ask(client, request)));
            }
            return;
        }
        Request request = new Request(method.equals("observe") ? Code.GET : Code.valueOf(method.toUpperCase()));
        // An empty option is how it is told to protect a request.
        request.getOptions().setOscore(Bytes.EMPTY);
        if (method.equals("observe")) {
            Things.observe(client, request, Integer.parseInt(words[4]));
            return;
        }
        if (words.length > 4) {
            request.setPayload(Things.bytes(words[4]));
        }
        CoapResponse response = Things.ask(client, request);
        boolean echo = response.getOptions().asSortedList().stream().anyMatch(option -> option.getNumber() == ECHO);
        Things.say(Things.text(response) + (echo ? "with an Echo" : ""));
    }
}
