//! A CoAPs session over any network stack that implements the traits of `embedded-nal-async`. It runs on any async
//! executor.
//!
//! The stack supplies a [`ConnectedUdp`]: a socket that exchanges datagrams with only one server. The traits of the
//! stack have no clock. So the caller supplies the time and a [`DelayNs`].
#![no_std]

use core::fmt::{self, Display, Formatter};
use embassy_futures::select::{Either, select};
use embedded_hal_async::delay::DelayNs;
use embedded_nal_async::ConnectedUdp;
use mote_client::{Client, Code, DATAGRAM_LEN, Event, Instant, Records, Response};

/// A session with one server over the socket `S`.
pub struct Session<'k, S, D> {
    socket: S,
    delay: D,
    now: fn() -> Instant,
    client: Client<'k>,
}

impl<'k, S: ConnectedUdp, D: DelayNs> Session<'k, S, D> {
    /// Opens a session over `socket`. The socket must have the same two addresses as the path of `client`. `now`
    /// returns the time, which must never decrease.
    ///
    /// # Errors
    /// The reason why the session cannot be opened.
    pub async fn connect(
        socket: S,
        delay: D,
        now: fn() -> Instant,
        mut client: Client<'k>,
    ) -> Result<Self, Error<S::Error>> {
        client.connect(now())?;
        let mut session = Self { socket, delay, now, client };
        while !matches!(session.next().await?, Event::Connected) {}
        Ok(session)
    }

    /// Sends a request and waits for its response.
    ///
    /// # Errors
    /// The reason why there is no response.
    pub async fn request(&mut self, code: Code, path: &str, payload: &[u8]) -> Result<Response, Error<S::Error>> {
        let mut out = [0; DATAGRAM_LEN];
        let datagram = self.client.request((self.now)(), code, path, payload, &mut out)?;
        self.socket.send(datagram).await.map_err(Error::Socket)?;
        loop {
            if let Event::Response(response) = self.next().await? {
                return Ok(response);
            }
        }
    }

    /// Sends close_notify, and ends the session.
    ///
    /// # Errors
    /// [`Error::Socket`] if close_notify cannot be sent. The session has then ended too.
    pub async fn close(mut self) -> Result<(), Error<S::Error>> {
        self.client.close();
        let mut out = [0; DATAGRAM_LEN];
        while let Some(event) = self.client.poll((self.now)(), &mut Records::new(&mut []), &mut out) {
            if let Event::Send(datagram) = event {
                self.socket.send(datagram).await.map_err(Error::Socket)?;
            }
        }
        Ok(())
    }

    /// Sends and receives datagrams until the client reports an event other than [`Event::Send`]. Returns this event.
    async fn next(&mut self) -> Result<Event<'static>, Error<S::Error>> {
        let (mut received, mut out) = ([0; DATAGRAM_LEN], [0; DATAGRAM_LEN]);
        let mut len = 0;
        loop {
            let now = (self.now)();
            // A datagram longer than the buffer is dropped.
            let mut records = Records::new(received.get_mut(..len).unwrap_or(&mut []));
            let mut happened = None;
            while let Some(event) = self.client.poll(now, &mut records, &mut out) {
                match event {
                    Event::Send(datagram) => self.socket.send(datagram).await.map_err(Error::Socket)?,
                    Event::Failed(error) => return Err(error.into()),
                    Event::Connected => happened = Some(Event::Connected),
                    Event::Response(response) => happened = Some(Event::Response(response)),
                }
            }
            if let Some(event) = happened {
                return Ok(event);
            }
            // The future of the socket may be dropped with a datagram in it: that is a loss, and losses are repaired.
            let arrival = self.socket.receive_into(&mut received);
            len = match self.client.next_alarm() {
                None => arrival.await.map_err(Error::Socket)?,
                Some(alarm) => {
                    let millis = alarm.since(now).as_millis().saturating_add(1).try_into().unwrap_or(u32::MAX);
                    match select(arrival, self.delay.delay_ms(millis)).await {
                        Either::First(len) => len.map_err(Error::Socket)?,
                        Either::Second(()) => 0,
                    }
                }
            };
        }
    }
}

/// The reason why a session cannot be opened, or why a request has no response.
#[derive(Debug)]
pub enum Error<E> {
    /// An error of the CoAPs client.
    Client(mote_client::Error),
    /// An error of the socket.
    Socket(E),
}

impl<E> From<mote_client::Error> for Error<E> {
    fn from(error: mote_client::Error) -> Self {
        Self::Client(error)
    }
}

impl<E: Display> Display for Error<E> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Socket(error) => write!(f, "the socket: {error}"),
        }
    }
}
