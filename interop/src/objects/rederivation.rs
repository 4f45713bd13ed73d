//! New keys after the client or the server has lost its stored state (RFC 8613, appendix B.2). The kid contexts of
//! these messages are CBOR byte strings that contain 8, 16 and 24 bytes.

use super::{OURS, Peer, THEIRS, brings, passing, served, uri, wire};
use crate::cell::{Check, Role, Scene};
use std::io::Write as _;

pub(super) type Row = (Role, &'static str, &'static [&'static str], fn(&Scene, &Peer) -> Check);

pub(super) const ROWS: [Row; 4] = [
    (Role::Server, "new keys after our loss", &["--rederivation"], after_our_loss),
    (Role::Server, "new keys after its loss", &["--rederivation", "--id-context", "0a0b0c"], server_after_its_loss),
    (Role::Client, "new keys after its loss", &["--rederivation"], client_after_its_loss),
    // Californium takes all but the last 8 bytes of R2 || ID1 for R2, so ID1 must have 8 bytes.
    (
        Role::Client,
        "new keys after our loss",
        &["--rederivation", "--id-context", "0a0b0c0d0e0f1011"],
        client_after_our_loss,
    ),
];

/// Appends a line to the context file of the peer (Californium). The line turns on the derivation of new keys. If
/// `lost` is true, appends a second line, which states that the peer has lost its state. The peer reads context files
/// in the format of libcoap. The two lines extend this format, so the command that writes the file cannot write them.
fn tell(scene: &Scene, lost: bool) -> Result<(), String> {
    let file = std::fs::File::options().append(true).open(scene.directory().join(THEIRS));
    let lines = if lost { "rederivation,bool,true\nlost,bool,true\n" } else { "rederivation,bool,true\n" };
    file.and_then(|mut file| file.write_all(lines.as_bytes())).map_err(|error| format!("{THEIRS}: {error}"))
}

fn lose_ours(scene: &Scene) -> Result<(), String> {
    let numbers = scene.directory().join(OURS).join("numbers.toml");
    std::fs::remove_file(&numbers).map_err(|error| format!("{}: {error}", numbers.display()))
}

fn are(found: &[Option<usize>], expected: &[Option<usize>]) -> Check {
    match found == expected {
        true => Ok(()),
        false => Err(format!("the kid contexts have {found:?} bytes, not {expected:?}").into()),
    }
}

fn after_our_loss(scene: &Scene, peer: &Peer) -> Check {
    tell(scene, false)?;
    let (_server, _, capture) = peer.serve(scene)?;
    let v = uri(capture.port, "v");
    lose_ours(scene)?;
    let first = passing(&capture, || brings(scene, &["put", &v, "a new value"], "2.04", ""))?;
    are(&wire::kid_contexts(&first)?, &[Some(9), Some(17), Some(26), None])?;
    let second = passing(&capture, || brings(scene, &["get", &v], "2.05", "a new value"))?;
    are(&wire::kid_contexts(&second)?, &[None, None])?;
    wire::protected(&capture)
}

/// Checks the derivation of new keys after the server of the peer has lost its state. Tegmen's client does not know of
/// the loss: its request is request #1, and it sends the request again as request #2.
fn server_after_its_loss(scene: &Scene, peer: &Peer) -> Check {
    tell(scene, true)?;
    let (_server, _, capture) = peer.serve(scene)?;
    let v = uri(capture.port, "v");
    let first = passing(&capture, || brings(scene, &["put", &v, "a new value"], "2.04", ""))?;
    are(&wire::kid_contexts(&first)?, &[Some(3), Some(17), Some(26), None])?;
    let second = passing(&capture, || brings(scene, &["get", &v], "2.05", "a new value"))?;
    are(&wire::kid_contexts(&second)?, &[None, None])?;
    wire::protected(&capture)
}

fn client_after_its_loss(scene: &Scene, peer: &Peer) -> Check {
    tell(scene, true)?;
    let (_served, _, capture) = served(scene)?;
    let v = uri(capture.port, "v");
    let passed = passing(&capture, || peer.expect(scene, &["twice", &v], "2.05 hello\n2.05 hello"))?;
    are(&wire::kid_contexts(&passed)?, &[Some(9), Some(17), Some(26), None, None, None])?;
    wire::protected(&capture)
}

/// Checks the derivation of new keys after Tegmen's server has lost its state. The first request of the peer's client
/// gets 4.01, and the next request gets the response.
fn client_after_our_loss(scene: &Scene, peer: &Peer) -> Check {
    tell(scene, false)?;
    lose_ours(scene)?;
    let (_served, _, capture) = served(scene)?;
    let v = uri(capture.port, "v");
    let passed = passing(&capture, || peer.expect(scene, &["twice", &v], "4.01 \n2.05 hello"))?;
    are(&wire::kid_contexts(&passed)?, &[None, Some(17), Some(26), None])?;
    wire::protected(&capture)
}
