import java.net.InetSocketAddress;
import java.net.URI;

import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.config.CoapConfig.TrackerMode;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.proxy2.ClientSingleEndpoint;
import org.eclipse.californium.proxy2.config.Proxy2Config;
import org.eclipse.californium.proxy2.resources.ProxyCacheResource;
import org.eclipse.californium.proxy2.resources.ProxyCoapResource;

/**
 * Californium's caching reverse proxy, for interop/src/proxy.rs and bench/src/proxy.rs: Proxy PORT NAME ORIGIN.
 *
 * It forwards requests for /NAME to the resource with the URI ORIGIN, and ends when it is killed. Limits are its defaults, except
 * that it counts no Message IDs towards the origin: the default allows 65,536 requests in 247 seconds.
 */
public final class Proxy {
    public static void main(String[] words) throws Exception {
        CoapConfig.register();
        Proxy2Config.register();
        Configuration configuration = Configuration.createStandardWithoutFile();
        configuration.set(CoapConfig.MID_TRACKER, TrackerMode.NULL);
        ClientSingleEndpoint origin = new ClientSingleEndpoint(CoapEndpoint.builder().setConfiguration(configuration).build());
        ProxyCoapResource resource =
                ProxyCoapResource.createReverseProxy(words[1], true, false, true, new URI(words[2]), origin);
        resource.setCache(new ProxyCacheResource(configuration, true));
        CoapServer server = new CoapServer(configuration);
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0]));
        server.addEndpoint(CoapEndpoint.builder().setConfiguration(configuration).setInetSocketAddress(address).build());
        server.add(resource);
        server.start();
        System.out.println("listening");
        Thread.currentThread().join();
    }
}
