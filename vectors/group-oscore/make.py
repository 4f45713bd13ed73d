#!/usr/bin/env python3
"""Makes group_oscore.json: messages that aiocoap protects with Group OSCORE, with the keys of the group.

    python3 -m venv venv && venv/bin/pip install 'aiocoap[oscore,linkheader]==0.4.17'
    venv/bin/python vectors/group-oscore/make.py > vectors/group-oscore/group_oscore.json

aiocoap follows draft-ietf-core-oscore-groupcomm-23 and later, and draft-amsuess-core-cachable-oscore-08. Where it differs from RFC 10021 and the RFCs that it stands on, this
script uses it as those have it, and the output names each difference under "differences".
"""
import hashlib
import json
import sys

import aiocoap
import aiocoap.meta
import cbor2
import cryptography
from aiocoap import oscore
from aiocoap.message import Direction
from cryptography.hazmat.primitives.asymmetric import ec

DIFFERENCES = [
    "aiocoap writes an empty sign_protected into the Countersign_structure of an abbreviated countersignature; RFC 9338, section 3.3, omits it",
    "aiocoap has no ECDH-SS + HKDF-256 (-27) with keys on P-256; RFC 10021, section 2.1.10, allows nothing else with HKDF SHA-256",
]


def countersign_structure(body, external_aad):
    return cbor2.dumps(["CounterSignature0", b"", external_aad, body])


oscore.AlgorithmCountersign._build_countersign_structure = staticmethod(countersign_structure)


class EcdhSsHkdf256OnP256(oscore.AlgorithmStaticStatic):
    """ECDH-SS + HKDF-256 with keys on P-256."""

    value = -27

    def staticstatic(self, private_key, public_key):
        return private_key.exchange(ec.ECDH(), public_key)


DETERMINISTIC = b"\xdc"


def seed(text):
    return hashlib.sha256(text.encode()).digest()


class Member:
    """The keys and the credential of a member, which follow from its name."""

    def __init__(self, curve, name, kid):
        self.kid = kid
        self.private_bytes = seed(f"{curve} {name}")
        if curve == "Ed25519":
            self.private = self.private_bytes
            x = oscore.Ed25519().public_from_private(self.private)
            key = {1: 1, 3: -8, -1: 6, -2: x}
        else:
            self.private = ec.derive_private_key(int.from_bytes(self.private_bytes, "big"), ec.SECP256R1())
            numbers = self.private.public_key().public_numbers()
            key = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        self.credential = cbor2.dumps({2: f"{name}.example", 8: {1: key}})

    def told(self):
        return {"id": self.kid.hex(), "private": self.private_bytes.hex(), "credential": self.credential.hex()}


def context(group, ourselves, others, number=0):
    made = oscore.SimpleGroupContext(
        alg_aead=oscore.algorithms[group["aead"]],
        hashfun=oscore.hashfunctions["sha256"],
        alg_signature=group["signature"],
        alg_group_enc=oscore.algorithms[group["group_encryption"]],
        alg_pairwise_key_agreement=group["agreement"],
        group_id=group["gid"],
        master_secret=group["secret"],
        master_salt=group["salt"],
        sender_id=ourselves.kid,
        private_key=ourselves.private,
        sender_auth_cred=ourselves.credential,
        peers={other.kid: other.credential for other in others} | {DETERMINISTIC: oscore.DETERMINISTIC_KEY},
        group_manager_cred=group["manager"].credential,
    )
    made.sender_sequence_number = number
    return made


def encoded(message, token, mid):
    message.mtype = aiocoap.NON
    message.mid = mid
    message.token = token
    return message.encode()


def arrived(data):
    message = aiocoap.Message.decode(data)
    message.direction = Direction.INCOMING
    return message


def bag(message):
    return oscore.CanUnprotect._extract_encrypted0(message)[2]


def exchange(name, client, server, server_id, pairwise, options):
    """A request with its plaintext, and the response to it; with options["own"] the response has a number of its own."""
    token = bytes.fromhex("7401")
    request = aiocoap.Message(code=aiocoap.GET, uri_path=("lamps", "1"), _token=token)
    if options.get("observe"):
        request.opt.observe = 0
    request.direction = Direction.OUTGOING
    plain_request = encoded(request, token, 1)
    sender = client.pairwise_for(server_id) if pairwise else client
    outer, request_id = sender.protect(request)
    protected_request = encoded(outer, token, 1)
    at_server = arrived(protected_request)
    received = server.get_oscore_context_for(bag(at_server))
    opened, server_request_id = received.unprotect(at_server)
    assert opened.opt.uri_path == ("lamps", "1")
    if options.get("own"):
        server_request_id.can_reuse_nonce = False
    response = aiocoap.Message(code=aiocoap.CONTENT, payload=b"on", content_format=0, _token=token)
    if options.get("observe"):
        response.opt.observe = 5
    response.direction = Direction.OUTGOING
    plain_response = encoded(response, token, 2)
    answering = server if options.get("signed", not pairwise) else server.pairwise_for(client.sender_id)
    outer, _ = answering.protect(response, server_request_id)
    protected_response = encoded(outer, token, 2)
    at_client = arrived(protected_response)
    opening = sender.context_from_response(bag(at_client))
    answer, _ = opening.unprotect(at_client, request_id)
    assert answer.payload == b"on"
    return {
        "name": name,
        "pairwise": pairwise,
        "plain_request": plain_request.hex(),
        "request": protected_request.hex(),
        "plain_response": plain_response.hex(),
        "response": protected_response.hex(),
    }


def deterministic(at_client, at_server, server_id):
    """A request of the Deterministic Client, and the response to it, which is signed."""
    token = bytes.fromhex("7401")
    request = aiocoap.Message(code=aiocoap.GET, uri_path=("lamps", "1"), _token=token)
    request.direction = Direction.OUTGOING
    plain_request = encoded(request, token, 1)
    sender = at_client.for_sending_deterministic_requests(DETERMINISTIC, server_id)
    outer, request_id = sender.protect(request)
    protected_request = encoded(outer, token, 1)
    arriving = arrived(protected_request)
    opened, server_request_id = at_server.get_oscore_context_for(bag(arriving)).unprotect(arriving)
    assert opened.opt.uri_path == ("lamps", "1")
    response = aiocoap.Message(code=aiocoap.CONTENT, payload=b"on", content_format=0, _token=token)
    response.direction = Direction.OUTGOING
    plain_response = encoded(response, token, 2)
    outer, _ = at_server.protect(response, server_request_id)
    protected_response = encoded(outer, token, 2)
    arriving = arrived(protected_response)
    answer, _ = sender.context_from_response(bag(arriving)).unprotect(arriving, request_id)
    assert answer.payload == b"on"
    return {
        "kid": DETERMINISTIC.hex(),
        "number": 300,
        "plain_request": plain_request.hex(),
        "request": protected_request.hex(),
        "plain_response": plain_response.hex(),
        "response": protected_response.hex(),
    }


def group(name, curve, aead, group_encryption):
    ed = curve == "Ed25519"
    return {
        "name": name,
        "curve": curve,
        "aead": aead,
        "group_encryption": group_encryption,
        "signature": oscore.algorithms_countersign["EdDSA on Ed25519" if ed else "ECDSA w/ SHA-256 on P-256"],
        "agreement": oscore.algorithms_staticstatic["ECDH-SS + HKDF-256"] if ed else EcdhSsHkdf256OnP256(),
        "gid": bytes.fromhex("44616c"),
        "secret": seed(name)[:16],
        "salt": b"\x9e\x7c\xa9\x22",
        "manager": Member(curve, "manager", b""),
    }


def told(of):
    client, server = Member(of["curve"], "client", b"\x25"), Member(of["curve"], "server", b"\x52")
    shared = deterministic(context(of, client, [server]), context(of, server, [client], 300), server.kid)
    at_client, at_server = context(of, client, [server], 5), context(of, server, [client], 300)
    pairwise = at_client.pairwise_for(server.kid)
    exchanges = [
        exchange("group", at_client, at_server, server.kid, False, {}),
        exchange("group, response with a number", at_client, at_server, server.kid, False, {"own": True}),
        exchange("group, pairwise response", at_client, at_server, server.kid, False, {"signed": False}),
        exchange("pairwise", at_client, at_server, server.kid, True, {}),
        exchange("pairwise, response with a number", at_client, at_server, server.kid, True, {"own": True}),
        exchange("group, observation", at_client, at_server, server.kid, False, {"observe": True, "own": True}),
    ]
    return {
        "name": of["name"],
        "curve": of["curve"],
        "aead": of["aead"],
        "group_encryption": of["group_encryption"],
        "gid": of["gid"].hex(),
        "master_secret": of["secret"].hex(),
        "master_salt": of["salt"].hex(),
        "group_manager_credential": of["manager"].credential.hex(),
        "client": client.told() | {"number": 5},
        "server": server.told() | {"number": 300},
        "derived": {
            "client_key": at_client._sender_key.hex(),
            "server_key": at_server._sender_key.hex(),
            "common_iv": at_client.common_iv.hex(),
            "signature_encryption_key": at_client.signature_encryption_key.hex(),
            "pairwise_client_key": pairwise.sender_key.hex(),
            "pairwise_server_key": pairwise.recipient_key.hex(),
        },
        "exchanges": exchanges,
        "deterministic": shared,
    }


def main():
    ccm = "AES-CCM-16-64-128"
    groups = [
        group("Ed25519", "Ed25519", ccm, ccm),
        group("P-256", "P-256", ccm, ccm),
        group("Ed25519, two algorithms", "Ed25519", "AES-CCM-16-128-128", "A128GCM"),
    ]
    made = {
        "source": f"aiocoap {aiocoap.meta.version}, cryptography {cryptography.__version__}, by make.py",
        "differences": DIFFERENCES,
        "groups": [told(of) for of in groups],
    }
    json.dump(made, sys.stdout, indent=1)
    print()


main()
