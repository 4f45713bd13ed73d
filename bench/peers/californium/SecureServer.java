import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;

import org.eclipse.californium.core.CoapResource;
import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.coap.CoAP.ResponseCode;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.core.server.resources.CoapExchange;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConfig.DtlsRole;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.cipher.CipherSuite;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedMultiPskStore;

/**
 * Californium as a server of CoAP over DTLS with one pre-shared key, for bench/src/reconnect.rs:
 * SecureServer PORT IDENTITY KEY, the key as text.
 *
 * It serves one value at /time, which clients can observe, and ends when it is killed. All limits are its defaults.
 */
public final class SecureServer {
    public static void main(String[] words) throws Exception {
        CoapConfig.register();
        DtlsConfig.register();
        Configuration configuration = Configuration.createStandardWithoutFile();
        AdvancedMultiPskStore keys = new AdvancedMultiPskStore();
        keys.setKey(words[1], words[2].getBytes(StandardCharsets.US_ASCII));
        DtlsConnectorConfig.Builder builder = DtlsConnectorConfig.builder(configuration);
        builder.set(DtlsConfig.DTLS_ROLE, DtlsRole.SERVER_ONLY);
        builder.setAsList(DtlsConfig.DTLS_CIPHER_SUITES, CipherSuite.TLS_PSK_WITH_AES_128_CCM_8);
        builder.setAdvancedPskStore(keys);
        builder.setAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])));
        DTLSConnector connector = new DTLSConnector(builder.build());
        CoapServer server = new CoapServer(configuration);
        server.addEndpoint(CoapEndpoint.builder().setConfiguration(configuration).setConnector(connector).build());
        server.add(new Value());
        server.start();
        Thread.currentThread().join();
    }

    private static final class Value extends CoapResource {
        Value() {
            super("time");
            setObservable(true);
        }

        @Override
        public void handleGET(CoapExchange exchange) {
            exchange.respond(ResponseCode.CONTENT, new byte[16]);
        }
    }
}
