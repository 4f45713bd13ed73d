//! Parts of the core library that certain images of motes must not contain. An image must contain only the code that it
//! uses.

use super::Error;

/// Beginnings of the names of the images that must not contain code from [`FILES`].
const IMAGES: [&str; 3] = ["blink_", "cosim_", "publisher"];
/// Source files whose code must not be in the images of [`IMAGES`]. Each entry has a crate and the beginning of a file
/// name. The files contain Block-wise transfer, Observe, OSCORE, and the queue of a node.
const FILES: [(&str, &str); 11] = [
    ("tegmen-coap", "src/block.rs"),
    ("tegmen-coap", "src/observe.rs"),
    ("tegmen-oscore", ""),
    ("tegmen", "src/node/blockwise.rs"),
    ("tegmen", "src/node/bodies.rs"),
    ("tegmen", "src/node/notify.rs"),
    ("tegmen", "src/node/observation.rs"),
    ("tegmen", "src/node/observers.rs"),
    ("tegmen", "src/node/oscore.rs"),
    ("tegmen", "src/node/pacing.rs"),
    ("tegmen", "src/node/queue.rs"),
];

/// The image of a device that resumes delegated sessions.
const DELEGATED: &str = "dtls_delegated";
/// The source files of public-key cryptography: curves, signatures and certificates. Each entry has a crate and the
/// beginning of a file name. The image `dtls_x509` contains code from all of them.
const PUBLIC_KEYS: [(&str, &str); 3] =
    [("tegmen-base", "src/crypto/p256"), ("tegmen-base", "src/crypto/curves"), ("tegmen-x509", "")];

/// Returns true if an instruction belongs to public-key cryptography. The instruction is given as its crate and source
/// line.
fn is_of_public_keys((krate, at): &(String, String)) -> bool {
    PUBLIC_KEYS.iter().any(|(of, file)| krate == of && at.starts_with(file))
        || ["p256", "elliptic-curve", "ecdsa", "crypto-bigint", "curve25519-dalek", "rsa"].contains(&krate.as_str())
}

/// Fails if an image contains an instruction of a part that this image must not contain. `sources` has the crate and
/// the source line of each instruction, after inlining. The names of functions would not show inlined code.
///
/// # Errors
/// [`Error::Linked`] with the first source line that is forbidden.
pub(super) fn check(image: &str, sources: &[(String, String)]) -> Result<(), Error> {
    let refused = |at: &str| Err(Error::Linked { image: image.to_owned(), at: at.to_owned() });
    if image == DELEGATED
        && let Some((_, at)) = sources.iter().find(|source| is_of_public_keys(source))
    {
        return refused(at);
    }
    if !IMAGES.iter().any(|name| image.starts_with(name)) {
        return Ok(());
    }
    let is_absent =
        |(krate, at): &&(String, String)| FILES.iter().any(|(of, file)| krate == of && at.starts_with(file));
    match sources.iter().find(is_absent) {
        None => Ok(()),
        Some((_, at)) => refused(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(krate: &str, at: &str) -> Vec<(String, String)> {
        [("core", "?"), ("tegmen-coap", "src/message.rs:90"), (krate, at)]
            .map(|(krate, at)| (krate.to_owned(), at.to_owned()))
            .to_vec()
    }

    #[test]
    fn an_image_of_a_mote_with_a_part_that_it_must_not_link_is_refused() {
        for image in ["blink_client", "blink_server", "cosim_client", "cosim_server", "publisher"] {
            for (krate, file) in FILES {
                let file = if file.is_empty() { "src/protect.rs" } else { file };
                let refused = check(image, &sources(krate, &format!("{file}:7"))).map_err(|error| error.to_string());
                assert_eq!(refused, Err(format!("{image} must not link {file}:7")));
            }
        }
    }

    #[test]
    fn the_image_of_a_delegated_device_with_public_key_cryptography_is_refused() {
        for (krate, at) in [
            ("tegmen-base", "src/crypto/p256/point.rs:3"),
            ("tegmen-x509", "src/certificate.rs:1"),
            ("p256", "src/lib.rs:1"),
        ] {
            let sources = [(krate.to_owned(), at.to_owned())];
            assert!(check(DELEGATED, &sources).is_err() && check("dtls_x509", &sources).is_ok());
        }
        assert!(check(DELEGATED, &sources("tegmen", "src/dtls/server.rs:7")).is_ok());
    }

    #[test]
    fn other_parts_and_other_images_pass() {
        assert!(check("blink_client", &sources("tegmen", "src/node/send.rs:7")).is_ok());
        assert!(check("oscore", &sources("tegmen-oscore", "src/protect.rs:7")).is_ok());
    }
}
