//! Tests a proxy that divides protected messages into blocks (RFC 8613, section 4.1.3.4.2). The client and the server
//! join the blocks again.

mod oscore_scene;

use oscore_scene::Scene;
use std::collections::HashMap;
use std::net::SocketAddr;
use tegmen::buf::Frame;
use tegmen::coap::{Block, Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen_host::client::{Response, Session};
use tegmen_host::contexts::MAX_UNFRAGMENTED_SIZE;
use tegmen_host::uri::Scheme;
use tokio::net::UdpSocket;

/// Returns the message with another payload, type, token and Message ID, and with one more block option.
fn written(
    message: &MessageRef<'_>,
    (message_type, id, token): (MessageType, u16, &[u8]),
    payload: &[u8],
    block: Option<(OptionNumber, Block)>,
) -> Vec<u8> {
    let mut storage = vec![0; 2000];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, message_type, message.code(), id, token).unwrap();
    for (number, value) in message.options().filter(|(number, _)| *number != OptionNumber::BLOCK1) {
        builder.option(number, value).unwrap();
    }
    builder.payload(payload).unwrap();
    if let Some((number, block)) = block {
        let mut bytes = [0; 4];
        builder.insert(number, tegmen::coap::uint_bytes(block.value(), &mut bytes)).unwrap();
    }
    frame.bytes().to_vec()
}

/// Starts a proxy for one client and one server. The proxy passes at most 64 bytes of payload in one message.
async fn cut(server: SocketAddr) -> SocketAddr {
    let (front, back) = (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = front.local_addr().unwrap();
    back.connect(server).await.unwrap();
    tokio::spawn(async move {
        // Responses whose blocks are still asked for, by the OSCORE option of their requests.
        let mut kept: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        let (mut id, mut buffer) = (1, vec![0; 3000]);
        loop {
            let (len, client) = front.recv_from(&mut buffer).await.unwrap();
            let bytes = buffer[..len].to_vec();
            let request = MessageRef::parse(&bytes).unwrap();
            if request.code() == Code::EMPTY {
                continue;
            }
            let option = request.option(OptionNumber::OSCORE).unwrap().to_vec();
            let asked = request.block(OptionNumber::BLOCK2).unwrap();
            if asked.is_none() {
                let mut answer = Vec::new();
                let blocks = request.payload().chunks(64).count();
                for (number, payload) in request.payload().chunks(64).enumerate() {
                    let first = Block::first(64);
                    let block = Block { number: number as u32, more: number + 1 < blocks, ..first };
                    let block = (blocks > 1).then_some((OptionNumber::BLOCK1, block));
                    id += 1;
                    let head = (MessageType::Confirmable, id, request.token());
                    back.send(&written(&request, head, payload, block)).await.unwrap();
                    let len = back.recv(&mut buffer).await.unwrap();
                    answer = buffer[..len].to_vec();
                    let response = MessageRef::parse(&answer).unwrap();
                    // The Block1 option of a response has the number of the block in its request.
                    assert_eq!(
                        response.block(OptionNumber::BLOCK1).unwrap().map(|block| block.number),
                        block.map(|(_, block)| block.number)
                    );
                    if number + 1 < blocks {
                        assert_eq!(response.code(), Code::CONTINUE);
                    }
                }
                kept.insert(option.clone(), answer);
            }
            let whole = kept[&option].clone();
            let whole = MessageRef::parse(&whole).unwrap();
            let number = asked.map_or(0, |block| block.number as usize);
            let blocks: Vec<&[u8]> = whole.payload().chunks(64).collect();
            let payload = blocks.get(number).copied().unwrap_or(&[]);
            let block = Block { number: number as u32, more: number + 1 < blocks.len(), ..Block::first(64) };
            let block = (blocks.len() > 1).then_some((OptionNumber::BLOCK2, block));
            let head = (MessageType::Acknowledgement, request.message_id(), request.token());
            let response = written(&whole, head, payload, block);
            front.send_to(&response, client).await.unwrap();
        }
    });
    address
}

async fn ask(client: &Session, method: Code, payload: &[u8]) -> Response {
    client.request(method, "value").payload(payload).await.unwrap()
}

#[tokio::test]
async fn messages_that_a_proxy_cuts_are_put_together_at_both_ends() {
    let scene = Scene::new("cut");
    let (_server, address) = scene.serve();
    let client = Session::connect_to(cut(address).await, Scheme::Coap, scene.client()).await.unwrap();
    assert_eq!(ask(&client, Code::GET, b"").await.payload, b"first");
    let long: Vec<u8> = (0..5000u32).map(|at| at as u8).collect();
    // Blocks inside of 1024 bytes, each in blocks outside of 64.
    for body in [&long[..60], &long[..500], &long] {
        assert_eq!(ask(&client, Code::PUT, body).await.code, Code::CHANGED);
        assert_eq!(ask(&client, Code::GET, b"").await.payload, body);
    }
}

/// Sends one block of a protected request that is not authentic. Returns the code of the response.
async fn told(address: SocketAddr, kid: u8, number: u32, more: bool, size1: Option<u32>) -> Code {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(address).await.unwrap();
    let mut storage = [0; 300];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::POST, 7, b"t").unwrap();
    builder.option(OptionNumber::OSCORE, &[0x09, 0, kid]).unwrap();
    builder.uint(OptionNumber::BLOCK1, Block { number, more, ..Block::first(64) }.value()).unwrap();
    if let Some(size1) = size1 {
        builder.uint(OptionNumber::SIZE1, size1).unwrap();
    }
    builder.payload(&[0; 64]).unwrap();
    socket.send(frame.bytes()).await.unwrap();
    let mut answer = [0; 300];
    let len = socket.recv(&mut answer).await.unwrap();
    MessageRef::parse(&answer[..len]).unwrap().code()
}

#[tokio::test]
async fn blocks_that_are_not_authentic_cost_little() {
    let scene = Scene::new("forged");
    let (_server, address) = scene.serve();
    // An unknown context, a last block without the ones before it, and a body over the limit.
    assert_eq!(told(address, 9, 0, true, None).await, Code::UNAUTHORIZED);
    assert_eq!(told(address, 1, 3, false, None).await, Code::REQUEST_ENTITY_INCOMPLETE);
    let much = MAX_UNFRAGMENTED_SIZE as u32 + 1;
    assert_eq!(told(address, 1, 0, true, Some(much)).await, Code::REQUEST_ENTITY_TOO_LARGE);
    assert_eq!(told(address, 1, 0, true, None).await, Code::CONTINUE);
    // All blocks in sequence. The whole body is not an authentic message of the other end.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(address).await.unwrap();
    let mut last = Code::EMPTY;
    for (number, more) in [(0, true), (1, true), (2, false)] {
        let mut storage = [0; 300];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder =
            Builder::new(&mut frame, MessageType::Confirmable, Code::POST, 9 + number as u16, b"t").unwrap();
        builder.option(OptionNumber::OSCORE, &[0x09, 0, 1]).unwrap();
        builder.uint(OptionNumber::BLOCK1, Block { number, more, ..Block::first(64) }.value()).unwrap();
        builder.payload(&[0; 64]).unwrap();
        socket.send(frame.bytes()).await.unwrap();
        let mut answer = [0; 300];
        let len = socket.recv(&mut answer).await.unwrap();
        last = MessageRef::parse(&answer[..len]).unwrap().code();
    }
    assert_eq!(last, Code::BAD_REQUEST);
    // A client with the keys is still served.
    let client = Session::connect_to(address, Scheme::Coap, scene.client()).await.unwrap();
    assert_eq!(ask(&client, Code::GET, b"").await.payload, b"first");
}
