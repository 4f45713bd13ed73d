"""aiocoap as a member of a group with Group OSCORE; the words are those of interop/src/objects/group.rs.

    aiocoap_group_peer.py server GROUP.json HOST PORT ANSWERS
    aiocoap_group_peer.py client GROUP.json MODE METHOD URI [PAYLOAD]
    aiocoap_group_peer.py deterministic-client GROUP.json URI [PROXY]

MODE and ANSWERS are group or pairwise. GROUP.json is what group_oscore_reader.py takes, with "us" and "other", the IDs of two members, and
"deterministic", that of the Deterministic Client. The third form sends a GET of the Deterministic Client.

aiocoap differs from RFC 10021 and the RFCs that it stands on in two points, which this program corrects: it writes an empty
sign_protected into the Countersign_structure of an abbreviated countersignature (RFC 9338, section 3.3, omits it), and has no
ECDH-SS + HKDF-256 with keys on P-256. aiocoap answers in the pairwise mode alone, unless it is told otherwise. It drops Proxy-Scheme and Uri-Port where it protects a request, so
this program adds them behind it.
"""

import asyncio
import json
import sys

import cbor2
from aiocoap import CHANGED, CONTENT, GET, PUT, Context, Message, oscore, resource
from aiocoap.credentials import CredentialsMap
from aiocoap.oscore_sitewrapper import OscoreSiteWrapper
from cryptography.hazmat.primitives.asymmetric import ec


def say(line):
    print(line, flush=True)


def countersign_structure(body, external_aad):
    return cbor2.dumps(["CounterSignature0", b"", external_aad, body])


oscore.AlgorithmCountersign._build_countersign_structure = staticmethod(countersign_structure)


class EcdhSsHkdf256OnP256(oscore.AlgorithmStaticStatic):
    value = -27

    def staticstatic(self, private_key, public_key):
        return private_key.exchange(ec.ECDH(), public_key)




def group(path):
    with open(path) as file:
        told = json.load(file)
    of, members = told["group"], told["members"]
    us, other = members[told["us"]], members[told["other"]]
    private = bytes.fromhex(us["private"])
    on_ed25519 = of["curve"] == "Ed25519"
    if not on_ed25519:
        private = ec.derive_private_key(int.from_bytes(private, "big"), ec.SECP256R1())
    made = oscore.SimpleGroupContext(
        alg_aead=oscore.algorithms[of["aead"]],
        hashfun=oscore.hashfunctions["sha256"],
        alg_signature=oscore.algorithms_countersign["EdDSA on Ed25519" if on_ed25519 else "ECDSA w/ SHA-256 on P-256"],
        alg_group_enc=oscore.algorithms[of["group_encryption"]],
        alg_pairwise_key_agreement=oscore.algorithms_staticstatic["ECDH-SS + HKDF-256"] if on_ed25519 else EcdhSsHkdf256OnP256(),
        group_id=bytes.fromhex(of["gid"]),
        master_secret=bytes.fromhex(of["master_secret"]),
        master_salt=bytes.fromhex(of["master_salt"]),
        sender_id=bytes.fromhex(told["us"]),
        private_key=private,
        sender_auth_cred=bytes.fromhex(us["credential"]),
        peers={
            bytes.fromhex(told["other"]): bytes.fromhex(other["credential"]),
            bytes.fromhex(told["deterministic"]): oscore.DETERMINISTIC_KEY,
        },
        group_manager_cred=bytes.fromhex(of["group_manager_credential"]),
    )
    return made, bytes.fromhex(told["other"]), bytes.fromhex(told["deterministic"])


class Value(resource.Resource):
    def __init__(self):
        super().__init__()
        self.value = b"hello"

    async def render_get(self, request):
        return Message(code=CONTENT, payload=self.value)

    async def render_put(self, request):
        self.value = request.payload
        return Message(code=CHANGED)


async def serve(path, host, port, answers):
    made, *_ = group(path)
    if answers == "group":
        oscore._GroupContextAspect.context_for_response = lambda self: self.groupcontext
        oscore._PairwiseContextAspect.context_for_response = lambda self: self.groupcontext
    known = CredentialsMap()
    known[":group"] = made
    site = resource.Site()
    site.add_resource(["v"], Value())
    context = await Context.create_server_context(OscoreSiteWrapper(site, known), bind=(host, int(port)))
    say("listening")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await context.shutdown()


async def ask(path, mode, method, uri, payload):
    made, other, _ = group(path)
    context = await Context.create_client_context()
    # Without a pattern that matches it would ask in clear.
    context.client_credentials["/".join(uri.split("/")[:3]) + "/*"] = made if mode == "group" else made.pairwise_for(other)
    # Numbers go on from one run to the next by their clock.
    made.sender_sequence_number = int(asyncio.get_running_loop().time() * 1000) & 0xFFFFFF
    request = Message(code={"get": GET, "put": PUT}[method], uri=uri, payload=payload.encode())
    response = await context.request(request).response
    say(f"{response.code.dotted} {response.payload.decode()}")
    await context.shutdown()


async def ask_as_all(path, uri, proxy):
    made, other, deterministic = group(path)
    sender = made.for_sending_deterministic_requests(deterministic, other)
    context = await Context.create_client_context()
    asked = proxy or "/".join(uri.split("/")[:3])
    context.client_credentials[asked + "/*"] = sender
    if proxy:
        protect, (host, port) = sender.protect, uri.split("/")[2].split(":")

        def protect_for_proxy(message):
            outer, request = protect(message)
            outer.opt.uri_host, outer.opt.uri_port, outer.opt.proxy_scheme = host, int(port), "coap"
            return outer, request

        sender.protect = protect_for_proxy
    request = Message(code=GET, uri=asked + "/" + uri.split("/", 3)[3])
    response = await context.request(request).response
    say(f"{response.code.dotted} {response.payload.decode()}")
    await context.shutdown()


match sys.argv[1:]:
    case ["server", path, host, port, answers]:
        asyncio.run(serve(path, host, port, answers))
    case ["client", path, mode, method, uri, *payload]:
        asyncio.run(ask(path, mode, method, uri, "".join(payload)))
    case ["deterministic-client", path, uri, *proxy]:
        asyncio.run(ask_as_all(path, uri, "".join(proxy)))
    case _:
        sys.exit(__doc__)
