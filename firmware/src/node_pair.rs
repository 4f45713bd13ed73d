//! The client and the server of `node_client` and `node_server` in one image, connected by a [`line`](super::line) in
//! memory. They exchange a handshake, an observation with notifications, and bodies in blocks in both directions.

use super::line::{leds, uart};
use super::mote::{Application, Memory, Mote, PACKET_LEN};
use super::node_client::Client;
use super::node_server::{Server, TEXT_LEN};
use super::two_motes::{HANDSHAKE, SERVER, converse, make, start};
use core::sync::atomic::Ordering;
use tegmen::coap::block::Block;
use tegmen::coap::{Builder, Code, MessageRef, OptionNumber, RequestId};
use tegmen::dtls::{Answer, ClientOnly, Fatal, Need, ServerOnly};
use tegmen::identity::PeerId;
use tegmen::node::{self, Features, Queue, Reply, RequestHead};
use tegmen::oscore::OpenedRequest;
use tegmen::time::{Duration, Instant};
use tegmen_firmware::measure::{Note, measured};
use tegmen_firmware::place::{Kept, Place};
use tegmen_lowpan::slip::Start;

/// Both motes, and the line between them.
pub struct Pair<C: Memory + 'static, S: Memory + 'static> {
    client: &'static mut Mote<ClientOnly, C>,
    asking: Asking,
    server: &'static mut Mote<ServerOnly, S>,
    serving: Server,
    now: Instant,
    line: &'static mut [u8; uart::LEN],
    storage: &'static mut [u8; PACKET_LEN],
    with_oscore: bool,
}

impl<C: Memory, S: Memory> Pair<C, S> {
    /// Makes both motes, and stores them in `client` and `server`. `client_parts` and `server_parts` make the optional
    /// parts of the nodes. If `with_oscore` is true, OSCORE protects the observation of the resource `blink`, and the
    /// transfers of texts in blocks. It does not protect the PUTs that `blink_client` sends every second.
    pub fn new(
        (client, client_parts): (&'static Place<Mote<ClientOnly, C>>, impl FnOnce() -> C::Features),
        (server, server_parts): (&'static Place<Mote<ServerOnly, S>>, impl FnOnce() -> S::Features),
        with_oscore: bool,
    ) -> Option<Self> {
        let now = Instant::from_micros(1);
        let client_of_blink: Client = Application::<C>::start(&start(1))?;
        let client_of_blink = if with_oscore { client_of_blink.with_oscore() } else { client_of_blink };
        Some(Self {
            client: make(client, now, 1, client_parts)?,
            asking: Asking { client: client_of_blink, heard: Heard::NOTHING },
            server: make(server, now, 2, server_parts)?,
            serving: Application::<S>::start(&start(2))?,
            now,
            line: LINE.take()?,
            storage: STORAGE.take()?,
            with_oscore,
        })
    }

    /// Does all exchanges. Returns `None` if a message is missing or wrong.
    pub fn run(&mut self) -> Option<()> {
        self.blink(HANDSHAKE, FIRST);
        self.now = self.now.after(Duration::from_secs(1));
        self.blink(SEND, NOTIFY);
        // The server shows a count when it has counted a PUT. The client shows a count when it arrives in a response or
        // in a notification. A PUT during the registration must wait in a queue.
        let queues = <C::Features as Features>::Queue::PLACES > 0;
        let expected = if queues { 3 * (1 + 2) } else { 3 };
        if leds::SHOWN.load(Ordering::Relaxed) != expected {
            return None;
        }
        self.upload(Code::PUT, &TEXT, PUT)?;
        self.download(Code::GET, 0, GET)?;
        // The server stores the response to the POST. The first block of this response is in the response to the last
        // block of the request.
        self.upload(Code::POST, &[0; TEXT_LEN], POST)?;
        self.download(Code::POST, 1, POST)
    }

    /// Lets the client send the message that is due: the PUT that `blink_client` sends every second. Then lets both
    /// motes answer each other until neither has a message to send.
    fn blink(&mut self, sending: u32, in_session: u32) {
        measured(sending, || self.client.on_time(&mut self.asking, self.now));
        self.converse(in_session);
    }

    fn converse(&mut self, in_session: u32) {
        let Self { client, asking, server, serving, now, line, storage, .. } = self;
        converse((&mut **client, asking), (&mut **server, serving), *now, in_session, (&mut **line, &mut **storage));
    }

    /// Sends a text in blocks. The response to the last block is 2.04. The response to a POST also contains the first
    /// block of [`TEXT`].
    fn upload(&mut self, method: Code, text: &[u8; TEXT_LEN], region: u32) -> Option<()> {
        let (blocks, _) = text.as_chunks::<BLOCK_LEN>();
        let asked = (method == Code::POST).then_some(block(0));
        for (number, bytes) in (0..).zip(blocks) {
            let more = number < LAST;
            self.ask(method, (asked, Some(Block { more, ..block(number) })), bytes, region)?;
            let expected = if more { Code::CONTINUE } else { Code::CHANGED };
            if self.asking.heard.code != expected {
                return None;
            }
        }
        (asked.is_none() || self.asking.heard.is_block(0)).then_some(())
    }

    /// Requests the blocks of [`TEXT`] from the block `from` on, and compares the responses with the text.
    fn download(&mut self, method: Code, from: u32, region: u32) -> Option<()> {
        for number in from..=LAST {
            self.ask(method, (Some(block(number)), None), &[], region)?;
            if !self.asking.heard.is_block(number) {
                return None;
            }
        }
        Some(())
    }

    /// Sends a request with these Block options to the resource `/text`, and processes the response.
    fn ask(
        &mut self,
        method: Code,
        (block2, block1): (Option<Block>, Option<Block>),
        payload: &[u8],
        region: u32,
    ) -> Option<()> {
        let head = RequestHead::new(method);
        let head = if self.with_oscore { head.with_oscore() } else { head };
        let Self { client, asking: Asking { client: Client { server, .. }, heard }, now, .. } = self;
        *heard = Heard::NOTHING;
        let peer = (*server)?;
        let write = |request: &mut Builder<'_, '_>| {
            request.path("text")?;
            block2.map_or(Ok(()), |block| request.uint(OptionNumber::BLOCK2, block.value()))?;
            block1.map_or(Ok(()), |block| request.uint(OptionNumber::BLOCK1, block.value()))?;
            request.payload(payload)
        };
        measured(region, || client.request(*now, peer, head, write)).ok()?;
        self.converse(region);
        Some(())
    }
}

/// The application of the client, and the last response that arrived.
struct Asking {
    client: Client,
    heard: Heard,
}

impl<M: Memory> Application<M> for Asking {
    type Roles = ClientOnly;

    fn start(start: &Start) -> Option<Self> {
        Some(Self { client: Application::<M>::start(start)?, heard: Heard::NOTHING })
    }

    fn key<'a>(&'a self, need: Need<'_>) -> Answer<'a> {
        Application::<M>::key(&self.client, need)
    }

    fn look(&mut self, mote: &mut Mote<ClientOnly, M>, now: Instant) {
        self.client.look(mote, now);
    }

    fn on_established(&mut self, mote: &mut Mote<ClientOnly, M>, now: Instant, peer: PeerId) {
        self.client.on_established(mote, now, peer);
    }

    fn on_closed(&mut self, now: Instant, peer: PeerId, why: Fatal) {
        Application::<M>::on_closed(&mut self.client, now, peer, why);
    }
}

impl<X: OpenedRequest> node::Application<X> for Asking {
    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        if let Reply::Response(response) = reply {
            self.heard = Heard::of(response);
        }
        node::Application::<X>::on_reply(&mut self.client, peer, request, reply);
    }
}

/// The code, the Block option and the payload of a response that the client received.
struct Heard {
    code: Code,
    block: Option<Block>,
    /// The payload, if it has the length of a block. Otherwise all bytes are zero.
    payload: [u8; BLOCK_LEN],
}

impl Heard {
    const NOTHING: Self = Self { code: Code::EMPTY, block: None, payload: [0; BLOCK_LEN] };

    fn of(response: &MessageRef<'_>) -> Self {
        let block = response.block(OptionNumber::BLOCK2).ok().flatten();
        Self { code: response.code(), block, payload: response.payload().try_into().unwrap_or([0; BLOCK_LEN]) }
    }

    /// Returns true if the response contains this block of [`TEXT`].
    fn is_block(&self, number: u32) -> bool {
        let expected = Block { more: number < LAST, ..block(number) };
        let (blocks, _) = TEXT.as_chunks();
        self.code.is_success() && self.block == Some(expected) && blocks.get(number as usize) == Some(&self.payload)
    }
}

/// Returns the Block option for the block with this number.
const fn block(number: u32) -> Block {
    Block { number, ..Block::first(BLOCK_LEN) }
}

/// Returns the [`Note`]s of the image, for the tool that measures the image: the name and the region of each measured
/// operation, and the size of each mote in bytes.
pub const fn notes<C: Memory, S: Memory>() -> [Note; 15] {
    [
        Note::operation(HANDSHAKE, "handshake client, GET"),
        Note::operation(HANDSHAKE + SERVER, "handshake server"),
        Note::operation(FIRST, "register client"),
        Note::operation(FIRST + SERVER, "register server"),
        Note::operation(SEND, "send PUT"),
        Note::operation(NOTIFY, "PUT, notify client"),
        Note::operation(NOTIFY + SERVER, "PUT, notify server"),
        Note::operation(PUT, "PUT in blocks client"),
        Note::operation(PUT + SERVER, "PUT in blocks server"),
        Note::operation(GET, "GET in blocks client"),
        Note::operation(GET + SERVER, "GET in blocks server"),
        Note::operation(POST, "POST in blocks client"),
        Note::operation(POST + SERVER, "POST in blocks server"),
        Note::size("client", size_of::<Mote<ClientOnly, C>>()),
        Note::size("server", size_of::<Mote<ServerOnly, S>>()),
    ]
}

/// The number of the measured region in which the instructions of the client in its first exchange are counted. The
/// next constants are the numbers of the regions for other exchanges. In each exchange the instructions of the server
/// are counted in the region whose number is higher by [`SERVER`].
const FIRST: u32 = 2;
const NOTIFY: u32 = 4;
const PUT: u32 = 6;
const GET: u32 = 8;
const POST: u32 = 10;
const SEND: u32 = 12;

/// The text that the client uploads with PUT, and later downloads. All its blocks are different, so that a block in a
/// wrong position is noticed.
static TEXT: [u8; TEXT_LEN] = {
    let mut text = [0; TEXT_LEN];
    let mut at = 0;
    while at < TEXT_LEN {
        text[at] = at as u8;
        at += 1;
    }
    text
};
/// Length of a block, in bytes.
const BLOCK_LEN: usize = 16;
/// The number of the last block of the text.
const LAST: u32 = (TEXT_LEN / BLOCK_LEN - 1) as u32;
static LINE: Kept<[u8; uart::LEN]> = Kept::new([0; uart::LEN]);
static STORAGE: Kept<[u8; PACKET_LEN]> = Kept::new([0; PACKET_LEN]);
