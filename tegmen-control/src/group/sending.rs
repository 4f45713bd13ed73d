//! The task that sends the rekey messages of a controller of groups.

use super::config::GroupError;
use super::controller::Controller;
use super::outbox::{Due, Next, Outbox, Pace};
use super::rekeying::Outgoing;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};
use tegmen_base::crypto::Crypto;
use tegmen_host::group::Group;
use tegmen_store::Store;
use tokio::net::UdpSocket;

/// The time after which [`send`] asks the controller again for rekey messages that the controller could not make.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// The times at which a controller sends messages, and the network interfaces that it uses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sending {
    /// The times at which datagrams are sent.
    pub pace: Pace,
    /// The outgoing interface: its name, or for IPv4 its address. With `None` the system selects the interface.
    pub interface: Option<String>,
    /// The outgoing interfaces of single groups. The key is the name of the group, and the value replaces `interface`.
    pub interfaces: BTreeMap<String, String>,
}

/// Sends the messages that a controller puts into its [`Outbox`]. At the start, sends the messages of the last change
/// of each group again. The future runs until it is dropped. If the controller has no outbox, the future ends at once.
///
/// A message that the system refuses to send has no effect on the state of the group. An event of the crate `tracing`
/// reports the first message that the system refuses to send. Another event reports the first message that the system
/// sends afterwards.
pub async fn send<S: Store, C: Crypto>(controller: &Controller<S, C>, sending: &Sending) {
    let Some(outbox) = controller.outbox() else { return };
    resume_all(controller, outbox).await;
    let mut sockets = Sockets { sending, open: HashMap::new(), unreachable: BTreeSet::new() };
    loop {
        match outbox.next(Instant::now()) {
            Next::Message(due) => {
                let is_sent = sockets.send(&due).await;
                outbox.sent(&due, is_sent, &sending.pace, Instant::now());
                tokio::time::sleep(sending.pace.interval).await;
            }
            Next::FromRows(group) => make_again(controller, outbox, &group).await,
            Next::Nothing(None) => outbox.changed().await,
            Next::Nothing(Some(until)) => tokio::select! {
                () = outbox.changed() => {}
                () = tokio::time::sleep_until(until.into()) => {}
            },
        }
    }
}

/// Plans work for each group in the store: the sending task makes the messages of the last change again, and sends
/// them. See [`Outbox::resume`].
async fn resume_all<S: Store, C: Crypto>(controller: &Controller<S, C>, outbox: &Outbox) {
    loop {
        match controller.names().await {
            Ok(names) => return names.iter().for_each(|name| outbox.resume(name, Instant::now())),
            Err(error) => {
                outbox.fail();
                tracing::error!(
                    "groups: the names of the groups cannot be read, to send their messages again: {error}"
                );
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}

/// Puts the messages of the last change of a group into the outbox.
async fn make_again<S: Store, C: Crypto>(controller: &Controller<S, C>, outbox: &Outbox, group: &str) {
    match controller.messages(group).await {
        Ok(rekeying) => outbox.put(group, &rekeying, Instant::now()),
        Err(error) => {
            outbox.fail();
            tracing::error!("groups: the rekey messages of {group} cannot be made: {error}");
            if matches!(error, GroupError::NotSigned | GroupError::Store(_)) {
                outbox.resume(group, Instant::now().checked_add(TRY_AGAIN).unwrap_or_else(Instant::now));
            }
        }
    }
}

/// The sockets with which [`send`] sends the rekey messages of the groups.
struct Sockets<'a> {
    sending: &'a Sending,
    /// The open sockets. The key has two values: the outgoing interface, and a flag that is true for IPv6.
    open: HashMap<(Option<String>, bool), UdpSocket>,
    /// The names of the groups to whose address the system refused to send the last message.
    unreachable: BTreeSet<String>,
}

impl Sockets<'_> {
    /// Sends a message. Returns true if the system accepted it.
    async fn send(&mut self, due: &Due) -> bool {
        let Due { group, message, .. } = due;
        let interface = self.sending.interfaces.get(group).or(self.sending.interface.as_ref()).cloned();
        let result = self.try_send(interface.clone(), message).await;
        if !message.to.ip().is_multicast() {
            return result.is_ok();
        }
        match &result {
            Ok(()) => {
                if self.unreachable.remove(group) {
                    tracing::info!("groups: rekey messages of {group} are sent again");
                }
            }
            Err(error) => {
                if self.unreachable.insert(group.clone()) {
                    let by = interface.map_or_else(String::new, |name| format!(" by the interface {name}"));
                    tracing::error!(
                        "groups: the rekey messages of {group} cannot be sent to {}{by}: {error}: add a route for multicast, \
                         or name another interface; meanwhile each member has to ask the controller for its keys",
                        message.to
                    );
                }
            }
        }
        result.is_ok()
    }

    async fn try_send(&mut self, interface: Option<String>, message: &Outgoing) -> io::Result<()> {
        let to = SocketAddr::new(message.to.ip().to_canonical(), message.to.port());
        let (interface, to) = match (interface, message.to) {
            (None, SocketAddr::V6(given)) if given.scope_id() > 0 => (Some(given.scope_id().to_string()), to),
            (interface, _) => (interface, to),
        };
        let route = Route::new(interface.as_deref(), to)?;
        let key = (interface, to.is_ipv6());
        let socket = match self.open.remove(&key) {
            Some(socket) => socket,
            None => UdpSocket::from_std(route.by.socket(None)?)?,
        };
        // A socket with an error is not used again, because another interface may have the name of the interface now.
        socket.send_to(&message.bytes, route.to).await?;
        self.open.insert(key, socket);
        Ok(())
    }
}

/// The outgoing interface and the destination of a message.
struct Route {
    /// An IP multicast group on the outgoing interface, with the IP version of the destination. The message is sent by
    /// a socket for this multicast group, because this socket uses the outgoing interface. The same socket also sends
    /// messages to single members.
    by: Group,
    to: SocketAddr,
}

impl Route {
    fn new(interface: Option<&str>, to: SocketAddr) -> io::Result<Self> {
        let group = match to.ip() {
            ip if ip.is_multicast() => ip,
            IpAddr::V4(_) => Ipv4Addr::new(224, 0, 0, 1).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1).into(),
        };
        let text = interface.map_or_else(|| group.to_string(), |interface| format!("{group}%{interface}"));
        let by: Group = text.parse().map_err(|error| io::Error::other(format!("{error}")))?;
        let to = match (to, by.at(to.port())) {
            (to, group) if to.ip() == group.ip() => group,
            // The address of a member on a link needs its interface, too.
            (SocketAddr::V6(member), SocketAddr::V6(group)) if member.ip().is_unicast_link_local() => {
                SocketAddrV6::new(*member.ip(), member.port(), 0, group.scope_id()).into()
            }
            (to, _) => to,
        };
        Ok(Self { by, to })
    }
}
