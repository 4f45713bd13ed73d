"""aiocoap as a server or a client of plain CoAP and of OSCORE; the words are those of interop/src/plain.rs and objects.rs.

    aiocoap_peer.py version
    aiocoap_peer.py coap-server HOST PORT
    aiocoap_peer.py coap-client METHOD URI [PAYLOAD]
    aiocoap_peer.py oscore-server DIR HOST PORT
    aiocoap_peer.py oscore-client DIR METHOD URI [PAYLOAD]
    aiocoap_peer.py oscore-client DIR observe URI COUNT
    aiocoap_peer.py edhoc-server KEY CREDENTIAL STYLE HOST PORT
    aiocoap_peer.py edhoc-client KEY CREDENTIAL STYLE combined|separate METHOD URI [PAYLOAD]
    aiocoap_peer.py proxy HOST PORT DESTINATION
    aiocoap_peer.py forward-proxy HOST PORT
    aiocoap_peer.py proxied-client PROXY METHOD URI [PAYLOAD]
    aiocoap_peer.py oscore-proxied-client PROXY DIR METHOD URI [PAYLOAD]
    aiocoap_peer.py oscore-host-client NAME DIR METHOD URI [PAYLOAD]
    aiocoap_peer.py directory HOST PORT
    aiocoap_peer.py register HOST PORT DIRECTORY NAME
    aiocoap_peer.py register-simply HOST PORT DIRECTORY NAME

DIR is a security context of aiocoap. NAME is the Uri-Host of the request. KEY is a file of `tegmen edhoc new`, CREDENTIAL that of the other end in hexadecimal, and STYLE
by-key-id or by-value.
"""

import asyncio
import sys
from importlib.metadata import version

from aiocoap import BAD_REQUEST, CHANGED, CONTENT, CREATED, DELETED, DELETE, GET, NON, POST, PUT, Context, Message
from aiocoap import error, resource
from aiocoap.credentials import CredentialsMap

BIG = bytes(b"0123456789abcdef"[at % 16] for at in range(5000))


def say(line):
    print(line, flush=True)


class Value(resource.Resource):
    """What PUT wrote; gone after DELETE; POST appends."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    async def render_get(self, request):
        if self.value is None:
            raise error.NotFound
        return Message(code=CONTENT, payload=self.value)

    async def render_put(self, request):
        code = CREATED if self.value is None else CHANGED
        self.value = request.payload
        return Message(code=code)

    async def render_post(self, request):
        self.value = (self.value or b"") + request.payload
        return Message(code=CHANGED, payload=self.value)

    async def render_delete(self, request):
        self.value = None
        return Message(code=DELETED)


class Slow(resource.Resource):
    """Takes longer than a piggybacked response may."""

    async def render_get(self, request):
        await asyncio.sleep(1.5)
        return Message(code=CONTENT, payload=b"slowly")


class Count(resource.ObservableResource):
    """One more every half second, for whoever observes."""

    def __init__(self):
        super().__init__()
        self.count = 0
        self.observers = 0

    async def tick(self):
        while True:
            await asyncio.sleep(0.5)
            self.count += 1
            self.updated_state()

    def update_observation_count(self, count):
        say(f"observers {count}")

    async def render_get(self, request):
        return Message(code=CONTENT, payload=str(self.count).encode())


class Big(Value):
    """5000 bytes, and as many come in."""

    async def render_put(self, request):
        if request.payload != BIG:
            return Message(code=BAD_REQUEST, payload=b"%d other bytes" % len(request.payload))
        say("took 5000 bytes")
        return Message(code=CHANGED)


def credentials(pattern, directory):
    known = CredentialsMap()
    known.load_from_dict({pattern: {"oscore": {"basedir": directory}}})
    return known


def edhoc_credentials(pattern, key, credential, style, combined=None):
    import tomllib

    import cbor2
    from aiocoap.edhoc import EdhocCredentials

    with open(key, "rb") as file:
        key = tomllib.load(file)
    known = CredentialsMap()
    known[pattern] = EdhocCredentials(
        suite=2,
        method=3,
        own_cred_style=style,
        own_cred={14: cbor2.loads(bytes.fromhex(key["credential"]))},
        private_key={1: 2, -1: 1, -4: bytes.fromhex(key["private_key"])},
        peer_cred={14: cbor2.loads(bytes.fromhex(credential))},
        use_combined_edhoc=combined,
    )
    return known


async def serve(host, port, known=None):
    site = resource.Site()
    count = Count()
    site.add_resource([".well-known", "core"], resource.WKCResource(site.get_resources_as_linkheader))
    site.add_resource(["v"], Value(b"hello"))
    site.add_resource(["slow"], Slow())
    site.add_resource(["count"], count)
    site.add_resource(["big"], Big(BIG))
    if known is not None:
        from aiocoap.oscore_sitewrapper import OscoreSiteWrapper

        site = OscoreSiteWrapper(site, known)
    context = await Context.create_server_context(site, bind=(host, int(port)))
    say("listening")
    ticking = asyncio.create_task(count.tick())
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    ticking.cancel()
    await context.shutdown()


async def relay(host, port, destination):
    """Passes everything on to one server, in blocks of 256 bytes."""
    from aiocoap.proxy.server import ProxyWithPooledObservations, UnconditionalRedirector
    from aiocoap.transports.udp6 import UDP6EndpointAddress

    UDP6EndpointAddress.maximum_block_size_exp = 4
    UDP6EndpointAddress.maximum_payload_size = 256
    proxy = ProxyWithPooledObservations(await Context.create_client_context())
    proxy.interpret_block_options = True
    proxy.add_redirector(UnconditionalRedirector(destination, False))
    context = await Context.create_server_context(proxy, bind=(host, int(port)))
    say("listening")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await context.shutdown()


async def forward(host, port):
    """A forward proxy."""
    from aiocoap.proxy.server import ForwardProxyWithPooledObservations

    outgoing = await Context.create_client_context()
    context = await Context.create_server_context(ForwardProxyWithPooledObservations(outgoing), bind=(host, int(port)))
    say("listening")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await context.shutdown()


def site_of_value():
    site = resource.Site()
    site.add_resource([".well-known", "core"], resource.WKCResource(site.get_resources_as_linkheader))
    value = Value(b"hello")
    value.rt = "tag:example.org,2026:value"
    site.add_resource(["v"], value)
    return site


async def directory(host, port):
    """A resource directory."""
    from aiocoap.cli.rd import StandaloneResourceDirectory

    context = await Context.create_server_context(None, bind=(host, int(port)))
    context.serversite = StandaloneResourceDirectory(context=context, lwm2m_compat=False)
    say("listening")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await context.shutdown()


async def register(host, port, uri, name, simply):
    """Registers at a directory until a line comes, and removes the registration then."""
    from aiocoap.resourcedirectory.client.register import Registerer

    context = await Context.create_server_context(site_of_value(), bind=(host, int(port)))
    if simply:
        request = Message(code=POST, uri=f"{uri}/.well-known/rd?ep={name}&lt=600")
        say(text(await context.request(request).response))
    else:
        registerer = Registerer(context, rd=uri, lt=600, registration_parameters={"ep": name})
        while registerer.state == "starting" or not registerer.state.startswith("registered"):
            await asyncio.sleep(0.1)
        say("registered")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if not simply:
        await registerer.shutdown()
        say("removed")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await context.shutdown()


def text(response):
    payload = "BIG" if response.payload == BIG else response.payload.decode("utf-8", "replace")
    return f"{response.code.dotted} {payload}"


def pattern_of(uri):
    """Without a pattern that matches, a client would ask in clear."""
    return "/".join(uri.split("/")[:3]) + "/*"


async def ask(method, uri, payload, known=None, proxy=None, host=None):
    context = await Context.create_client_context()
    if known is not None:
        context.client_credentials = known
    count = 4
    if method == "observe" and payload:
        count, payload = int(payload), ""
    codes = {"get": GET, "non": GET, "observe": GET, "put": PUT, "post": POST, "delete": DELETE}
    request = Message(code=codes[method], uri=uri, payload=BIG if payload == "BIG" else payload.encode())
    if host is not None:
        request.opt.uri_host = host
    if method == "non":
        request.mtype = NON
    if method == "observe":
        request.opt.observe = 0
    asked = context
    if proxy is not None:
        from aiocoap.proxy.client import ProxyForwarder

        asked = ProxyForwarder(proxy, context)
        if known is not None:
            # Its OSCORE leaves out the options that name the target, so they are added to what is protected.
            from aiocoap.transports.oscore import TransportOSCORE

            (protection,) = [each for each in context.request_interfaces if isinstance(each, TransportOSCORE)]
            protection._wire, asked = asked, context
    pending = asked.request(request)
    notifications = aiter(pending.observation) if method == "observe" else None
    say(text(await pending.response))
    if method == "observe":
        if pending.observation.cancelled:
            say("it is no observation")
            return
        seen = 1
        while seen < count:
            say(text(await anext(notifications)))
            seen += 1
        # It tells the server so at the next notification, with a Reset.
        pending.observation.cancel()
        say("cancelled")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await context.shutdown()


match sys.argv[1:]:
    case ["version"]:
        say("version " + version("aiocoap"))
    case ["coap-server", host, port]:
        asyncio.run(serve(host, port))
    case ["coap-client", method, uri, *payload]:
        asyncio.run(ask(method, uri, "".join(payload)))
    case ["oscore-server", directory, host, port]:
        asyncio.run(serve(host, port, credentials(":peer", directory)))
    case ["oscore-client", directory, method, uri, *payload]:
        asyncio.run(ask(method, uri, "".join(payload), credentials(pattern_of(uri), directory)))
    case ["edhoc-server", key, credential, style, host, port]:
        pattern = f"coap://{host}:{port}/*"
        asyncio.run(serve(host, port, edhoc_credentials(pattern, key, credential, style)))
    case ["edhoc-client", key, credential, style, how, method, uri, *payload]:
        known = edhoc_credentials(pattern_of(uri), key, credential, style, how == "combined")
        asyncio.run(ask(method, uri, "".join(payload), known))
    case ["directory", host, port]:
        asyncio.run(directory(host, port))
    case ["register" | "register-simply" as how, host, port, uri, name]:
        asyncio.run(register(host, port, uri, name, how == "register-simply"))
    case ["forward-proxy", host, port]:
        asyncio.run(forward(host, port))
    case ["proxied-client", proxy, method, uri, *payload]:
        asyncio.run(ask(method, uri, "".join(payload), proxy=proxy))
    case ["oscore-proxied-client", proxy, directory, method, uri, *payload]:
        asyncio.run(ask(method, uri, "".join(payload), credentials(pattern_of(uri), directory), proxy))
    case ["oscore-host-client", name, directory, method, uri, *payload]:
        known = credentials(f"coap://{name}:*", directory)
        asyncio.run(ask(method, uri, "".join(payload), known, host=name))
    case ["proxy", host, port, destination]:
        asyncio.run(relay(host, port, destination))
    case _:
        sys.exit(__doc__)
