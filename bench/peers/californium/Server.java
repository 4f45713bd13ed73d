import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

import org.eclipse.californium.core.CoapResource;
import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.coap.CoAP.ResponseCode;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.core.server.resources.CoapExchange;
import org.eclipse.californium.cose.AlgorithmID;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.oscore.HashMapCtxDB;
import org.eclipse.californium.oscore.OSCoreCoapStackFactory;
import org.eclipse.californium.oscore.OSCoreCtx;

/**
 * Californium as a server of OSCORE with many contexts, for bench/src/addresses.rs: Server PORT CONTEXTS.
 *
 * It serves one value at /example_data, and ends when it is killed. Secret and IDs are those of addresses.rs.
 */
public final class Server {
    private static final byte[] SECRET = "bench of oscore!".getBytes(StandardCharsets.US_ASCII);
    private static final int REPLAY_WINDOW = 32;
    private static final int MAX_UNFRAGMENTED_SIZE = 4096;

    public static void main(String[] words) throws Exception {
        CoapConfig.register();
        Configuration configuration = Configuration.createStandardWithoutFile();
        HashMapCtxDB contexts = new HashMapCtxDB();
        for (int index = 0; index < Integer.parseInt(words[1]); index++) {
            contexts.addContext(new OSCoreCtx(SECRET, false, AlgorithmID.AES_CCM_16_64_128, id('s', index), id('c', index),
                    AlgorithmID.HKDF_HMAC_SHA_256, REPLAY_WINDOW, null, null, MAX_UNFRAGMENTED_SIZE));
        }
        OSCoreCoapStackFactory.useAsDefault(contexts);
        CoapServer server = new CoapServer(configuration);
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0]));
        server.addEndpoint(CoapEndpoint.builder().setConfiguration(configuration).setInetSocketAddress(address).build());
        server.add(new Value());
        server.start();
        Thread.currentThread().join();
    }

    private static byte[] id(char role, int index) {
        return ByteBuffer.allocate(5).put((byte) role).putInt(index).array();
    }

    private static final class Value extends CoapResource {
        private volatile byte[] value = new byte[16];

        Value() {
            super("example_data");
        }

        @Override
        public void handleGET(CoapExchange exchange) {
            exchange.respond(ResponseCode.CONTENT, value);
        }

        @Override
        public void handlePUT(CoapExchange exchange) {
            value = exchange.getRequestPayload();
            exchange.respond(ResponseCode.CHANGED);
        }
    }
}
