//! Parsers that need no state.

use tegmen::buf::{Frame, Reader};
use tegmen::dtls::Records;
use tegmen::dtls::handshake::client_hello::ClientHello;
use tegmen::dtls::handshake::extension::Extensions;
use tegmen::dtls::handshake::server_hello::ServerHello;
use tegmen::dtls::handshake::{Fragment, hello_verify_request, key_exchange};
use tegmen::endpoint::Path;
use tegmen::ip::{Datagram, HEADROOM, prepend_headers};
use tegmen::slip::{Control, Decoder, encode};

/// A datagram: its records are pieces of it in order, and fragments lie within their messages.
pub fn records(data: &[u8]) {
    let mut datagram = data.to_vec();
    let mut records = Records::new(&mut datagram);
    let mut at = 0;
    while let Some(outcome) = records.next_record() {
        let Ok(record) = outcome else {
            assert!(records.next_record().is_none());
            return;
        };
        at += 13;
        assert_eq!(data[at..at + record.body.len()], *record.body);
        at += record.body.len();
        let mut reader = Reader::new(record.body);
        while let Ok(fragment) = Fragment::read(&mut reader) {
            assert!(fragment.offset() as usize + fragment.body.len() <= fragment.length() as usize);
            if fragment.is_whole() {
                bodies(fragment.message_type().0, fragment.body);
            }
        }
    }
    assert_eq!(at, data.len());
}

/// A type of handshake message, and a body for it.
pub fn hello(data: &[u8]) {
    if let Some((&kind, body)) = data.split_first() {
        bodies(kind, body);
    }
}

fn bodies(kind: u8, body: &[u8]) {
    match kind {
        1 => {
            if let Ok(hello) = ClientHello::read(body, true) {
                let [before, behind] = hello.around_cookie;
                assert_eq!(before.len() + 1 + hello.cookie.len() + behind.len(), body.len());
                let _ = (hello.signals_renegotiation_info(), hello.offers_null_compression());
            }
        }
        2 => {
            let _ = ServerHello::read(body, true);
        }
        3 => {
            let _ = hello_verify_request::read(body);
        }
        12 | 16 => {
            if let Ok(text) = key_exchange::read(body) {
                assert_eq!(text.len() + 2, body.len());
            }
        }
        _ => {
            let _ = Extensions::read(&mut Reader::new(body), true);
        }
    }
}

/// Bytes of a serial line: frames, and the packets in them, which are the same when written again.
pub fn slip_ip(data: &[u8]) {
    let mut storage = [0; 300];
    let mut decoder = Decoder::new(&mut storage);
    for &byte in data {
        let Some(frame) = decoder.push(byte) else { continue };
        let line: Vec<u8> = encode(&*frame).collect();
        let mut again = [0; 300];
        let mut second = Decoder::new(&mut again);
        let decoded = line.iter().filter_map(|&byte| second.push(byte).map(|frame| frame.to_vec()));
        assert_eq!(decoded.collect::<Vec<_>>(), [frame.to_vec()]);
        let _ = Control::parse(frame);
        packet(frame);
    }
    packet(&mut data.to_vec());
}

fn packet(bytes: &mut [u8]) {
    let Ok(datagram) = Datagram::parse(bytes) else { return };
    let mut storage = vec![0; HEADROOM + datagram.payload.len()];
    let mut frame = Frame::new(&mut storage, HEADROOM);
    frame.append(datagram.payload).expect("it has its length");
    // What was received is sent once more, from where it came.
    let path = Path { local: datagram.path.remote, remote: datagram.path.local };
    prepend_headers(&mut frame, &path, 64).expect("there is room in front");
    assert_eq!(Datagram::parse(frame.bytes_mut()), Ok(datagram));
}

/// What hosts read: representations to show, URIs, packs and problems. What is read is written and read again.
pub fn formats(data: &[u8]) {
    let Some((&format, bytes)) = data.split_first() else { return };
    for number in [u32::from(format), 40, 50, 60, 110, 112, 257] {
        let _ = tegmen_host::formats::show(Some(number), bytes);
    }
    if let Ok(pack) = tegmen_host::senml::from_json(bytes) {
        let again = tegmen_host::senml::from_json(&tegmen_host::senml::to_json(&pack)).expect("our own");
        assert_eq!(again, pack);
    }
    if let Ok(pack) = tegmen_host::senml::from_cbor(bytes) {
        let again = tegmen_host::senml::from_cbor(&tegmen_host::senml::to_cbor(&pack)).expect("our own");
        // A number that is none is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{pack:?}"));
    }
    if let Ok(problem) = tegmen_host::problem::Problem::from_cbor(bytes) {
        assert_eq!(tegmen_host::problem::Problem::from_cbor(&problem.to_cbor()), Ok(problem));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(uri) = tegmen_host::uri::Uri::parse(text)
    {
        assert!(uri.path.iter().all(|segment| segment.len() <= text.len()));
    }
}
