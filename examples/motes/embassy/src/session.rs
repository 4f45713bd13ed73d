//! A CoAPs session over a UDP socket of Embassy.

use embassy_net::IpEndpoint;
use embassy_net::udp::UdpSocket;
use embassy_time::{Instant, with_deadline};
use mote_client::{Client, Code, DATAGRAM_LEN, Error, Event, Records, Response};

/// A session with one server.
pub(crate) struct Session<'s, 'k> {
    socket: UdpSocket<'s>,
    server: IpEndpoint,
    client: Client<'k>,
}

impl<'s, 'k> Session<'s, 'k> {
    /// Opens the session over `socket`, which must be bound to the local address and port in the path of `client`.
    ///
    /// # Errors
    /// The reason why the session cannot be opened.
    pub(crate) async fn connect(
        socket: UdpSocket<'s>,
        server: IpEndpoint,
        mut client: Client<'k>,
    ) -> Result<Self, Error> {
        client.connect(now())?;
        let mut session = Self { socket, server, client };
        while !matches!(session.next().await?, Event::Connected) {}
        Ok(session)
    }

    /// Sends a request and waits for its response.
    ///
    /// # Errors
    /// The reason why there is no response.
    pub(crate) async fn request(&mut self, code: Code, path: &str, payload: &[u8]) -> Result<Response, Error> {
        let mut out = [0; DATAGRAM_LEN];
        let datagram = self.client.request(now(), code, path, payload, &mut out)?;
        send(&self.socket, datagram, self.server).await;
        loop {
            if let Event::Response(response) = self.next().await? {
                return Ok(response);
            }
        }
    }

    /// Sends close_notify, and ends the session.
    pub(crate) async fn close(mut self) {
        self.client.close();
        let mut out = [0; DATAGRAM_LEN];
        while let Some(event) = self.client.poll(now(), &mut Records::new(&mut []), &mut out) {
            if let Event::Send(datagram) = event {
                send(&self.socket, datagram, self.server).await;
            }
        }
        self.socket.flush().await;
    }

    /// Sends and receives datagrams until the client reports an event other than [`Event::Send`]. Returns this event.
    async fn next(&mut self) -> Result<Event<'static>, Error> {
        let (mut received, mut out) = ([0; DATAGRAM_LEN], [0; DATAGRAM_LEN]);
        let mut len = 0;
        loop {
            let mut records = Records::new(received.get_mut(..len).unwrap_or(&mut []));
            let mut happened = None;
            while let Some(event) = self.client.poll(now(), &mut records, &mut out) {
                match event {
                    Event::Send(datagram) => send(&self.socket, datagram, self.server).await,
                    Event::Failed(error) => return Err(error),
                    Event::Connected => happened = Some(Event::Connected),
                    Event::Response(response) => happened = Some(Event::Response(response)),
                }
            }
            if let Some(event) = happened {
                return Ok(event);
            }
            // Rounded up: at an earlier time nothing would be due.
            let millis = self.client.next_alarm().map(|at| at.as_micros().div_ceil(1000));
            let alarm = millis.map_or(Instant::MAX, Instant::from_millis);
            len = match with_deadline(alarm, self.socket.recv_from(&mut received)).await {
                Ok(Ok((len, from))) if from.endpoint == self.server => len,
                // The alarm, or a datagram that is too long or of another sender.
                _ => 0,
            };
        }
    }
}

/// Sends a datagram. If this fails, the datagram is lost. This is like a loss in the network: the client sends the
/// datagram again.
async fn send(socket: &UdpSocket<'_>, datagram: &[u8], server: IpEndpoint) {
    if let Err(error) = socket.send_to(datagram, server).await {
        defmt::warn!("a datagram was not sent: {}", defmt::Debug2Format(&error));
    }
}

/// Returns the time in the form that the client takes.
fn now() -> mote_client::Instant {
    mote_client::Instant::from_micros(Instant::now().as_micros())
}
