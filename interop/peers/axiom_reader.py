#!/usr/bin/env python3
"""Opens the records of a group after Axiom in a capture, with the keys of the group: axiom_reader.py KEYS.json CAPTURE.pcap

It shares no code with Tegmen. It follows the text of the paper (M. Tiloca, K. Nikitin, S. Raza, "Axiom - DTLS-based secure IoT
group communication", sections 5.3 to 5.6), RFC 5246, sections 5, 6.2.3 and 6.3, and RFC 6655. Where the format of Tegmen differs
from the paper, docs/groups.md says so: with a suite that has no cipher, the secret of the individual keys is
client_write_MAC_key + server_write_MAC_key. Needs `cryptography` of PyPI.

KEYS.json: {"suite", "group": [IP, PORT], "group_id", "members": {IP: SenderID}, "epochs": {EPOCH: {"master_secret",
"client_random", "server_random"}}}, with bytes in hexadecimal digits.

Writes a line of JSON for each record: its kind, epoch, SenderID, number, and content. Ends with 1 if a record does not open.
"""

import hashlib
import hmac
import ipaddress
import json
import struct
import sys

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

# Bytes of a key, and of a tag.
SUITES = {"Ccm": (16, 16), "Ccm8": (16, 8), "Gcm": (16, 16), "MacOnly": (32, 32)}
APPLICATION_DATA = 23
DTLS_1_2 = 0xFEFD


def prf(secret, label, seed, length):
    """The PRF of TLS 1.2 (RFC 5246, section 5)."""
    seed, out = label + seed, b""
    a = seed
    while len(out) < length:
        a = hmac.new(secret, a, hashlib.sha256).digest()
        out += hmac.new(secret, a + seed, hashlib.sha256).digest()
    return out[:length]


class Epoch:
    """The keys of an epoch."""

    def __init__(self, suite, secrets):
        self.suite = suite
        key, _ = SUITES[suite]
        iv = 0 if suite == "MacOnly" else 4
        master, client, server = (bytes.fromhex(secrets[name]) for name in ("master_secret", "client_random", "server_random"))
        block = prf(master, b"key expansion", server + client, 2 * key + 2 * iv)
        self.client, self.server = block[:key], block[key : 2 * key]
        self.client_iv, self.server_iv = block[2 * key : 2 * key + iv], block[2 * key + iv :]

    def individual(self, listener, sender_id):
        """The key of the responses of a listener, given by its address of 16 bytes, to a sender."""
        seed = listener + bytes([sender_id])
        return prf(self.client + self.server, b"key derivation", seed, SUITES[self.suite][0])

    def open(self, key, iv, header, body):
        """The content of a record whose header has 13 bytes. Raises InvalidTag."""
        number, kind = header[3:11], header[:3]
        tag = SUITES[self.suite][1]
        if self.suite == "MacOnly":
            content, code = body[:-tag], body[-tag:]
            expected = hmac.new(key, number + kind + struct.pack(">H", len(content)) + content, hashlib.sha256).digest()
            if not hmac.compare_digest(code, expected):
                raise InvalidTag
            return content
        if body[:8] != number:
            raise InvalidTag
        cipher = AESGCM(key) if self.suite == "Gcm" else AESCCM(key, tag_length=tag)
        associated = number + kind + struct.pack(">H", len(body) - 8 - tag)
        return cipher.decrypt(iv + number, body[8:], associated)


class Signatures:
    """The public keys of the members. A record ends with a signature of 64 bytes."""

    def __init__(self, identity, public_keys):
        self.identity = bytes.fromhex(identity)
        self.keys = {int(number): load_der_public_key(bytes.fromhex(key)) for number, key in public_keys.items()}
        self.requests = {}

    def verify(self, line, number, header, body, signature, overhead):
        """Verifies a record, given what was read of it and the number of its member. Raises InvalidSignature."""
        content = bytes.fromhex(line["content"])
        signed = b"axiom " + line["kind"].encode() + self.identity
        signed += header[3:11] + header[:3] + struct.pack(">H", len(body) - overhead) + body
        if line["kind"] == "request":
            self.requests[content] = struct.pack(">BHQ", line["sender"], line["epoch"], line["tsn"])
        else:
            # In this capture a response names its request by the content, in the place of a token.
            signed += self.requests[content.removeprefix(b"response to ")]
        digest = hashlib.sha256(signed).digest()
        key = self.keys[number]
        if isinstance(key, ec.EllipticCurvePublicKey):
            numbers = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
            key.verify(utils.encode_dss_signature(*numbers), digest, ec.ECDSA(utils.Prehashed(SHA256())))
        else:
            key.verify(signature, digest)


def datagrams(capture):
    """Each UDP datagram of a capture whose packets begin with their IPv4 header: source, destination, payload."""
    magic, *_, link = struct.unpack("<I2H4I", capture[:24])
    if (magic, link) != (0xA1B2C3D4, 101):
        sys.exit("no capture of IP packets")
    at = 24
    while at < len(capture):
        _, _, length, _ = struct.unpack("<4I", capture[at : at + 16])
        packet = capture[at + 16 : at + 16 + length]
        at += 16 + length
        header = 4 * (packet[0] & 15)
        if packet[0] >> 4 != 4 or packet[9] != 17:
            continue
        ports = struct.unpack(">2H", packet[header : header + 4])
        source, destination = (str(ipaddress.ip_address(packet[i : i + 4])) for i in (12, 16))
        yield (source, ports[0]), (destination, ports[1]), packet[header + 8 :]


def mapped(address):
    """An address in 16 bytes, IPv4-mapped for IPv4 (RFC 4291, section 2.5.5.2)."""
    return bytes(10) + b"\xff\xff" + ipaddress.ip_address(address).packed


def read(keys, epochs, signatures, source, destination, datagram):
    """Opens a datagram, which is one record."""
    kind, version, epoch, own, tsn, length = struct.unpack(">BHHB5sH", datagram[:13])
    if (kind, version) != (APPLICATION_DATA, DTLS_1_2) or length != len(datagram) - 13:
        raise ValueError("no record of application data")
    keyed = epochs.get(epoch)
    if keyed is None:
        raise ValueError(f"no keys of epoch {epoch}")
    line = {"epoch": epoch, "tsn": int.from_bytes(tsn, "big")}
    if list(destination) == keys["group"]:
        line |= {"kind": "request", "sender": own}
        key, iv = keyed.server, keyed.server_iv
    else:
        if own != keys["group_id"] or source[1] != keys["group"][1]:
            raise ValueError("of another group")
        sender = keys["members"][destination[0]]
        line |= {"kind": "response", "sender": sender, "listener": source[0]}
        key, iv = keyed.individual(mapped(source[0]), sender), keyed.client_iv
    header, body = datagram[:13], datagram[13:]
    if signatures is None:
        line["content"] = keyed.open(key, iv, header, body).hex()
        return line
    body, signature = body[:-64], body[-64:]
    line["content"] = keyed.open(key, iv, header, body).hex()
    number = keys["members"][source[0]]
    overhead = SUITES[keyed.suite][1] + (0 if keyed.suite == "MacOnly" else 8)
    signatures.verify(line, number, header, body, signature, overhead)
    return line


def main():
    keys_file, capture = sys.argv[1:]
    with open(keys_file, encoding="utf-8") as file:
        keys = json.load(file)
    epochs = {int(number): Epoch(keys["suite"], secrets) for number, secrets in keys["epochs"].items()}
    signatures = Signatures(keys["identity"], keys["public_keys"]) if keys["public_keys"] else None
    failed = 0
    with open(capture, "rb") as file:
        for source, destination, datagram in datagrams(file.read()):
            try:
                print(json.dumps(read(keys, epochs, signatures, source, destination, datagram)))
            except (ValueError, KeyError, InvalidSignature, InvalidTag) as error:
                failed += 1
                print(json.dumps({"error": f"{type(error).__name__}: {error}", "record": datagram.hex()}))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
