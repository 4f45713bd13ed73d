"""Group OSCORE of aiocoap, protected and unprotected at all ends in one thread.

    group.py version
    group.py requests|responses MEMBERS BYTES TURNS

A turn of `requests` is a request of each member to one other, in group mode, with a signature. A turn of `responses` is a response
of each member to a request, in pairwise mode; the pairwise contexts are there before, though aiocoap makes a new one for each
message. Prints the CPU time of all turns.
"""

import sys
import time

import aiocoap.meta
from aiocoap import Message, oscore
from aiocoap.numbers.codes import CHANGED, POST
from aiocoap.numbers.types import NON

SIGNATURE = oscore.Ed25519()
AEAD = oscore.algorithms["AES-CCM-16-64-128"]
ONE = b"\xff"


def group(members):
    """The contexts of one member, which has the name ONE, and of the others by their names."""
    names = [bytes([number]) for number in range(members)]
    keys = {name: SIGNATURE.generate_with_ccs() for name in [ONE, *names]}
    manager = SIGNATURE.generate_with_ccs()[1]

    def context(name, peers):
        private, credential = keys[name]
        return oscore.SimpleGroupContext(
            alg_aead=AEAD,
            hashfun=oscore.hashfunctions["sha256"],
            alg_signature=SIGNATURE,
            alg_group_enc=AEAD,
            alg_pairwise_key_agreement=oscore.EcdhSsHkdf256(),
            group_id=b"group",
            master_secret=b"0123456789abcdef",
            master_salt=b"salt",
            sender_id=name,
            private_key=private,
            sender_auth_cred=credential,
            peers={peer: keys[peer][1] for peer in peers},
            group_manager_cred=manager,
        )

    return context(ONE, names), {name: context(name, [ONE]) for name in names}


def moved(message):
    """The message at the other end."""
    message.mid, message.token, message.mtype = 1, b"\x01", NON
    return Message.decode(message.encode())


def opened_request(context, message):
    """Unprotects a request by the context that its option names."""
    _, _, unprotected, _ = oscore.CanUnprotect._extract_encrypted0(message)
    return context.get_oscore_context_for(unprotected).unprotect(message)


def request(sender, receiver, content):
    """Protects and unprotects one request. Returns it as each end knows it."""
    protected, sent = sender.protect(Message(code=POST, payload=content))
    plain, received = opened_request(receiver, moved(protected))
    assert plain.payload == content
    return sent, received


def response(requester, responder, asked, content):
    """Protects and unprotects one response to a request."""
    sent, received = asked
    protected, _ = responder.protect(Message(code=CHANGED, payload=content), received)
    plain, _ = requester.unprotect(moved(protected), sent)
    assert plain.payload == content


def main(words):
    if words == ["version"]:
        python = ".".join(map(str, sys.version_info[:3]))
        print(f"aiocoap {aiocoap.meta.version}, Python {python}")
        return
    what, members, size, turns = words[0], *map(int, words[1:])
    one, others = group(members)
    pairs = {}
    if what == "responses":
        pairs = {name: (one.pairwise_for(name), other.pairwise_for(ONE)) for name, other in others.items()}
    content = b"\x5a" * size
    spent = 0
    for _ in range(turns):
        if what == "requests":
            begin = time.thread_time_ns()
            for other in others.values():
                request(other, one, content)
            spent += time.thread_time_ns() - begin
        else:
            asked = {name: request(one, other, content) for name, other in others.items()}
            begin = time.thread_time_ns()
            for name, (requester, responder) in pairs.items():
                response(requester, responder, asked[name], content)
            spent += time.thread_time_ns() - begin
    print(f"nanoseconds {spent}")


if __name__ == "__main__":
    main(sys.argv[1:])
