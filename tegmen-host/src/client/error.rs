//! Errors of a client. The message of each error names the cause and a next step for the user.

use crate::contexts::ContextError;
use crate::state::StateError;
use crate::udp::BindError;
use crate::uri::UriError;
use std::io;
use std::net::SocketAddr;

/// The reason why a request has no response. The message of each variant names the next step for the user.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The resolver found no address for the host name.
    #[error("{host} cannot be resolved: {source}; {}", resolving(host))]
    Resolve {
        /// The host name.
        host: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// This machine does not have the network interface that follows the % of an address.
    #[error("{host}: there is no network interface {interface}; `ip link` lists them")]
    Interface {
        /// The address, including the interface.
        host: String,
        /// Name of the interface.
        interface: String,
    },
    /// The system cannot send to the address.
    #[error("{remote} cannot be reached: {source}")]
    Unreachable {
        /// The address.
        remote: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// This machine has no route for a request to a multicast group.
    #[error(
        "{remote} cannot be reached: {source}; this machine has no multicast route there: name an interface that is up, as in \
         {ip}%eth0, or add a route (`ip route add {ip} dev eth0`)", ip = remote.ip()
    )]
    NoRoute {
        /// The address of the group.
        remote: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The client cannot send a protected request to a group.
    #[error("the group {group} cannot be asked: {problem}")]
    Group {
        /// The name of the group.
        group: String,
        /// The reason, and the next step for the user.
        problem: String,
    },
    /// An ICMP message reported that no program listens at the port.
    #[error("nothing listens at {remote}: is the server running, and is {port} its port ({other})?", port = remote.port())]
    Refused {
        /// The address of the server.
        remote: SocketAddr,
        /// A text for the error message, which names the default port of `coap` or `coaps`.
        other: &'static str,
    },
    /// The server did not answer at all.
    #[error("{remote} did not answer within {seconds} s: is it running, and does a firewall let UDP pass?")]
    Silence {
        /// The address.
        remote: SocketAddr,
        /// The time for which the client waited, in seconds.
        seconds: u64,
    },
    /// The server reported that the Finished message of the client is wrong. So the server does not know the identity,
    /// or it has another key for the identity.
    #[error(
        "{remote} did not accept our Finished ({detail}): it does not know the identity '{identity}', or has another key \
         for it. It does not reveal which of the two; compare both with the server's credentials"
    )]
    IdentityOrKey {
        /// The address.
        remote: SocketAddr,
        /// The identity that was used.
        identity: String,
        /// The name of the alert that the server sent.
        detail: &'static str,
    },
    /// The server answered the ClientHello, and sent nothing afterwards.
    #[error(
        "{remote} answered our ClientHello and nothing that followed, for {seconds} s: it is too busy, or datagrams are lost on \
         the way; try again later. Compare identity and key only if that does not help: some servers do not answer wrong ones"
    )]
    Unfinished {
        /// The address.
        remote: SocketAddr,
        /// The time for which the client waited, in seconds.
        seconds: u64,
    },
    /// The handshake failed for a reason that no other variant names.
    #[error("the handshake with {remote} failed: {detail}")]
    Handshake {
        /// The address.
        remote: SocketAddr,
        /// The reason, and a next step for the user.
        detail: String,
    },
    /// The server did not answer the request. The session continues.
    #[error(
        "{remote} did not answer the request within {seconds} s; the session is kept. Allow more time, or see whether the server \
         is reached"
    )]
    NoResponse {
        /// The address.
        remote: SocketAddr,
        /// The time for which the client waited, in seconds.
        seconds: u64,
    },
    /// The session ended before the response came.
    #[error("{remote} ended the session ({detail}); connect again")]
    Ended {
        /// The address.
        remote: SocketAddr,
        /// The reason.
        detail: String,
    },
    /// The client closed the session before the request, or while the request waited.
    #[error("the session with {remote} was closed here; connect again")]
    Closed {
        /// The address.
        remote: SocketAddr,
    },
    /// The request was not sent, because the maximum number of requests was already waiting.
    #[error(
        "{max} requests to {remote} wait already: wait for one to end, or allow more at once (nstart) or in the queue (max_queued)"
    )]
    QueueFull {
        /// The address.
        remote: SocketAddr,
        /// The maximum number of requests that wait.
        max: usize,
    },
    /// The request was not sent, because the server did not answer the earlier requests.
    #[error(
        "the request waited {seconds} s behind others that {remote} did not answer, and was not sent. Allow more time, or see \
         whether the server is reached"
    )]
    NotSent {
        /// The address.
        remote: SocketAddr,
        /// The time for which the client waited, in seconds.
        seconds: u64,
    },
    /// The endpoint already has another session between the same two addresses.
    #[error(
        "the endpoint has a session with {remote} already, with another name, key or protection: close it, or use another endpoint"
    )]
    InUse {
        /// The address.
        remote: SocketAddr,
    },
    /// The address of a socket is not valid.
    #[error("{address} is not an IP address with a port, as [::]:0 or 192.0.2.1:5684")]
    Address {
        /// The text that is not an address.
        address: String,
    },
    /// A socket could not be opened.
    #[error(transparent)]
    Bind(BindError),
    /// The URI of a server is not valid.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The path of a request cannot be sent.
    #[error("the path {path}: {problem}")]
    Path {
        /// The path.
        path: String,
        /// The error.
        problem: &'static str,
    },
    /// The server rejected the message with a Reset message.
    #[error("{remote} answered with Reset: it does not take such a message")]
    Reset {
        /// The address.
        remote: SocketAddr,
    },
    /// Options and token do not fit in one message, even with the smallest block.
    #[error("the options of the request do not fit one message of {max} bytes: shorten path and query")]
    TooLong {
        /// Maximum number of bytes of a message.
        max: usize,
    },
    /// The server sent blocks that do not belong to the same body.
    #[error(
        "{remote} sent blocks that do not belong together ({detail}): the representation changed again and again, or the server is at fault"
    )]
    Blocks {
        /// The address.
        remote: SocketAddr,
        /// The error.
        detail: &'static str,
    },
    /// The body of the response is longer than the limit of the client.
    #[error("the response is longer than {max} bytes: allow more")]
    BodyTooLong {
        /// The limit, in bytes.
        max: usize,
    },
    /// A transfer would need more blocks than the block option can number (RFC 7959, section 2.2).
    #[error(
        "{len} bytes need more than 2^20 blocks of {block_size} bytes, which is the most that CoAP can number: {advice}"
    )]
    TooManyBlocks {
        /// The length of the body in bytes.
        len: usize,
        /// The size of a block in bytes.
        block_size: usize,
        /// The next step for the user.
        advice: String,
    },
    /// The directory of resumable sessions cannot be read or written.
    #[error("{file}: {source}: sessions are kept there to be resumed; correct the path, or who may write there")]
    Resume {
        /// The path of the file or directory.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The stored session cannot be used, or the session cannot be stored.
    #[error("the kept session (--session): {0}")]
    State(StateError),
    /// The OSCORE context cannot be used.
    #[error(transparent)]
    Context(ContextError),
    /// The server sends the notifications of an observation to a group, and the client does not take part.
    #[error("{remote} sends the notifications to a group, and its informative response is not accepted: {problem}")]
    Informative {
        /// The address of the server.
        remote: SocketAddr,
        /// The reason, and the next step for the user if there is one.
        problem: &'static str,
    },
    /// The response to a protected request is not protected, or its protection is not valid. Any host may have sent
    /// this response.
    #[error("{remote} sent {detail}")]
    NotProtected {
        /// The address.
        remote: SocketAddr,
        /// The error and its possible cause.
        detail: &'static str,
    },
    /// The client and the server could not agree on an OSCORE context by EDHOC.
    #[error("no EDHOC with {remote}: {detail}")]
    Edhoc {
        /// The address.
        remote: SocketAddr,
        /// The reason, and a next step for the user.
        detail: String,
    },
    /// The OSCORE sequence numbers of the client are lost, and the server does not derive new keys with the client.
    #[error(
        "{remote} derives no new OSCORE keys with us, and our numbers are lost: its context needs rederivation = true \
         (libcoap: rfc8613_b_2,bool,true and rfc8613_b_1_2,bool,false)"
    )]
    NoNewKeys {
        /// The address.
        remote: SocketAddr,
    },
    /// The URI has the scheme `coaps`, and the client has no key.
    #[error(
        "coaps needs an identity and a key (--identity NAME --key HEX, or --credentials FILE), or an authority to trust (--ca FILE)"
    )]
    NoKey,
    /// The system gives no randomness, or the key log cannot be written.
    #[error("{0}")]
    System(io::Error),
}

impl ClientError {
    /// True if a later attempt may succeed: the server did not answer, or no program listens at its port.
    pub(super) fn is_passing(&self) -> bool {
        self.is_silence() || matches!(self, Self::Refused { .. } | Self::Unreachable { .. })
    }

    /// True if the server did not answer.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Silence { .. } | Self::Unfinished { .. })
    }
}

fn resolving(host: &str) -> String {
    match host.split_once('%') {
        Some((_, zone)) => format!("is there an interface {zone}? `ip link` shows them"),
        None => "is the name right, and is there a name server?".to_owned(),
    }
}
