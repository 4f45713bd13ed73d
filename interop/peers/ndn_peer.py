"""A peer on python-ndn.

ndn_peer.py packets FILE                 encodes each packet that a line of FILE describes, and verifies that of the line
ndn_peer.py produce SOCKET PREFIX KIND   registers a prefix, and answers with packets that are signed by this kind of signature
ndn_peer.py consume SOCKET NAME KIND     asks for a name, and verifies the signature
ndn_peer.py schemas FILE                 compiles each trust schema of FILE, and decides about its pairs of names
ndn_peer.py chain SOCKET PREFIX ANCHOR   answers with packets of a key whose certificate a root signs, and writes that of the root
ndn_peer.py validate SOCKET NAME MODEL ANCHOR   asks for a name, and validates the packet by a trust schema
"""

import asyncio

import json
import sys
from datetime import UTC, datetime, timedelta

from Cryptodome.PublicKey import ECC
from ndn.app import NDNApp as FirstApp
from ndn.app_support.light_versec import DEFAULT_USER_FNS, Checker, compile_lvs, lvs_validator
from ndn.app_support.light_versec.compiler import SemanticError
from ndn.app_support.security_v2 import derive_cert, self_sign
from ndn.appv2 import NDNApp
from ndn.encoding import (
    Component,
    InterestParam,
    MetaInfo,
    Name,
    TypeNumber,
    make_data,
    make_interest,
    parse_data,
    parse_interest,
)
from ndn.security import KeychainDigest
from ndn.security.signer.ed25519_signer import Ed25519Signer
from ndn.security.signer.sha256_digest_signer import DigestSha256Signer
from ndn.security.signer.sha256_ecdsa_signer import Sha256WithEcdsaSigner
from ndn.security.signer.sha256_hmac_signer import HmacSha256Signer
from ndn.security.validator import known_key_validator as known
from ndn.transport.stream_face import UnixFace
from ndn.types import InterestNack, InterestTimeout, ValidationFailure, ValidResult
from hashlib import sha256

# DER in front of a private key of Ed25519 (RFC 8410, section 7).
ED25519_HEAD = bytes.fromhex("302e020100300506032b657004220420")


def name_of(components):
    return [Component.from_bytes(bytes.fromhex(value), kind) for kind, value in components]


class Keys:
    """The keys that the first line of a file describes."""

    def __init__(self, line):
        locator = name_of(line["locator"])
        secret = bytes.fromhex(line["secret"])
        ecdsa = ECC.construct(curve="P-256", d=int.from_bytes(secret, "big"))
        ed25519 = ED25519_HEAD + secret
        self.hmac = secret
        self.ecdsa = ecdsa.public_key()
        self.ed25519 = ECC.import_key(ed25519).public_key()
        self.signers = {
            0: DigestSha256Signer(),
            3: Sha256WithEcdsaSigner(locator, ecdsa.export_key(format="DER")),
            4: HmacSha256Signer(locator, secret),
            5: Ed25519Signer(locator, ed25519),
        }

    def verify(self, pointers):
        """True for a valid signature."""
        kind = pointers.signature_info.signature_type
        if kind == 0:
            digest = sha256(b"".join(pointers.signature_covered_part)).digest()
            return digest == bytes(pointers.signature_value_buf)
        check, key = {
            3: (known.verify_ecdsa, self.ecdsa),
            4: (known.verify_hmac, self.hmac),
            5: (known.verify_ed25519, self.ed25519),
        }[kind]
        return check(key, pointers)


class Described:
    """A signer that adds what makes the signature of an Interest unique."""

    def __init__(self, signer, packet):
        self.signer = signer
        self.packet = packet
        self.get_signature_value_size = signer.get_signature_value_size
        self.write_signature_value = signer.write_signature_value

    def write_signature_info(self, info):
        self.signer.write_signature_info(info)
        info.signature_nonce = self.packet["sig_nonce"]
        info.signature_time = self.packet["sig_time"]
        info.signature_seq_num = self.packet["sig_sequence"]


def optional_bytes(text):
    return None if text is None else bytes.fromhex(text)


def encode(keys, packet):
    name = name_of(packet["name"])
    signer = keys.signers.get(packet["signature"])
    if packet["kind"] == "data":
        last = packet["final_block"]
        meta = MetaInfo(
            content_type=packet["content_type"],
            freshness_period=packet["freshness"],
            final_block_id=None if last is None else name_of([last])[0],
        )
        return make_data(name, meta, optional_bytes(packet["content"]), signer)
    param = InterestParam(
        can_be_prefix=packet["can_be_prefix"],
        must_be_fresh=packet["must_be_fresh"],
        nonce=packet["nonce"],
        lifetime=packet["lifetime"],
        hop_limit=packet["hop_limit"],
        forwarding_hint=[name_of(hint) for hint in packet["hint"]],
    )
    if signer is not None:
        signer = Described(signer, packet)
    return make_interest(name, param, optional_bytes(packet["parameters"]), signer)


def verify(keys, packet, wire):
    """True if the packet has a valid digest and a valid signature."""
    if packet["kind"] == "data":
        return keys.verify(parse_data(wire)[3])
    name, _, parameters, pointers = parse_interest(wire)
    if parameters is not None:
        digest = sha256(b"".join(pointers.digest_covered_part)).digest()
        if digest != bytes(pointers.digest_value_buf):
            return False
        if Component.get_type(name[-1]) != TypeNumber.PARAMETERS_SHA256_DIGEST_COMPONENT:
            return False
    return pointers.signature_info is None or keys.verify(pointers)


def packets(path):
    with open(path, encoding="ascii") as lines:
        keys = Keys(json.loads(next(lines)))
        for line in lines:
            packet = json.loads(line)
            is_valid = verify(keys, packet, bytes.fromhex(packet["wire"]))
            print(bytes(encode(keys, packet)).hex(), "valid" if is_valid else "wrong")


# The keys of both ends where no file names others.
KEYS = {"locator": [[8, b"house".hex()], [8, b"KEY".hex()], [8, "01"]], "secret": "42" * 32}


def produce(socket, prefix, kind):
    app = NDNApp(face=UnixFace(socket))
    signer = Keys(KEYS).signers[kind]

    @app.route(prefix)
    def on_interest(name, _parameters, reply, _context):
        content = Name.to_str(name).encode()
        reply(app.make_data(name, content, signer, freshness_period=0))

    async def after_start():
        await asyncio.sleep(0.3)
        print("registered", flush=True)

    app.run_forever(after_start=after_start())


def consume(socket, name, kind):
    app = NDNApp(face=UnixFace(socket))
    keys = Keys(KEYS)

    async def validator(_name, pointers, _context):
        is_valid = pointers.signature_info.signature_type == kind and keys.verify(pointers)
        return ValidResult.PASS if is_valid else ValidResult.FAIL

    async def ask():
        try:
            _, content, _ = await app.express(name, validator, lifetime=4000)
            print("content", bytes(content).decode(), flush=True)
        except InterestNack as nack:
            print("nack", nack.reason, flush=True)
        except InterestTimeout:
            print("timeout", flush=True)
        except ValidationFailure:
            print("wrong signature", flush=True)
        finally:
            app.shutdown()

    app.run_forever(after_start=ask())


def has_type(component, arguments):
    """$eq_type, for patterns that are not bound, too: that of python-ndn ends with a TypeError."""
    return None not in arguments and DEFAULT_USER_FNS["$eq_type"](component, arguments)


def schemas(path):
    with open(path, encoding="ascii") as lines:
        for line in lines:
            drawn = json.loads(line)
            model = compile_lvs(drawn["text"])
            try:
                checker = Checker(model, DEFAULT_USER_FNS | {"$eq_type": has_type})
                decided = "".join("1" if checker.check(packet, key) else "0" for packet, key in drawn["pairs"])
            except SemanticError:
                decided = "loop"
            print(bytes(model.encode()).hex(), decided)


def chain(socket, prefix, anchor):
    """A root and a sensor, each with a key of ECDSA. The certificate of the root is written to a file, that of the sensor published."""
    app = NDNApp(face=UnixFace(socket))

    def new_key(name):
        key = ECC.generate(curve="P-256")
        signer = Sha256WithEcdsaSigner(name, key.export_key(format="DER"))
        return key.public_key().export_key(format="DER"), signer

    root_name = Name.normalize(prefix + "/KEY/root")
    root_key, root_signer = new_key(root_name)
    _, root = self_sign(root_name, root_key, root_signer)
    with open(anchor, "wb") as file:
        file.write(root)
    temp_name = Name.normalize(prefix + "/temp/KEY/temp")
    temp_key, temp_signer = new_key(temp_name)
    certificate_name, certificate = derive_cert(
        temp_name, "root", temp_key, root_signer, datetime.now(UTC) - timedelta(seconds=1), 3600
    )
    temp_signer.key_locator_name = certificate_name
    _, unknown_signer = new_key(Name.normalize(prefix + "/temp/KEY/unknown"))

    @app.route(prefix)
    def on_interest(name, _parameters, reply, _context):
        if Name.is_prefix(name, certificate_name):
            reply(bytes(certificate))
        elif Component.from_str("KEY") not in name:
            signer = unknown_signer if Component.from_str("unknown") in name else temp_signer
            reply(app.make_data(name, b"content " + Name.to_str(name).encode(), signer, freshness_period=0))

    async def after_start():
        await asyncio.sleep(0.3)
        print("registered", flush=True)

    app.run_forever(after_start=after_start())


def validate(socket, name, model, anchor):
    app = FirstApp(face=UnixFace(socket), keychain=KeychainDigest())
    with open(model, "rb") as file:
        checker = Checker.load(file.read(), DEFAULT_USER_FNS)
    with open(anchor, "rb") as file:
        validator = lvs_validator(checker, app, file.read())

    async def ask():
        try:
            _, _, content = await app.express_interest(name, lifetime=4000, validator=validator)
            print("content", bytes(content).decode(), flush=True)
        except ValidationFailure:
            print("wrong signature", flush=True)
        except (InterestNack, InterestTimeout) as error:
            print(type(error).__name__, flush=True)
        finally:
            app.shutdown()

    app.run_forever(after_start=ask())


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "packets":
        packets(rest[0])
    elif verb == "produce":
        produce(rest[0], rest[1], int(rest[2]))
    elif verb == "consume":
        consume(rest[0], rest[1], int(rest[2]))
    elif verb == "schemas":
        schemas(rest[0])
    elif verb == "chain":
        chain(*rest)
    elif verb == "validate":
        validate(*rest)
    else:
        sys.exit(__doc__)
