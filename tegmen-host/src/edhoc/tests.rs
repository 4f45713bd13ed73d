use super::*;
use crate::provider::HostCrypto;
use std::path::PathBuf;

struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-edhoc-files-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_key_that_was_written_is_read() {
    let files = Files::new("key");
    let crypto = &mut HostCrypto::new([1; 32], 1);
    let path = files.0.join("meter");
    let credential = create_key(crypto, &path, "meter", &[7], Transfer::ByReference).unwrap();
    assert_eq!(credential.kid(), Some(&[7][..]));
    assert_eq!(read_key(&path).unwrap().credential(), &credential);
    // Nothing is written over.
    assert!(matches!(create_key(crypto, &path, "meter", &[7], Transfer::ByReference), Err(EdhocError::File { .. })));
    let long = "n".repeat(60);
    let refused = create_key(crypto, &files.0.join("long"), &long, &[7], Transfer::ByReference);
    assert!(matches!(refused, Err(EdhocError::NameTooLong)));
}

#[cfg(unix)]
#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let files = Files::new("exposed");
    let path = files.0.join("meter");
    create_key(&mut HostCrypto::new([1; 32], 1), &path, "meter", &[7], Transfer::ByValue).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let Err(error) = read_key(&path) else { panic!("it was read") };
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn a_key_must_be_that_of_its_credential() {
    let files = Files::new("mismatch");
    let crypto = &mut HostCrypto::new([1; 32], 1);
    for name in ["one", "other"] {
        create_key(crypto, &files.0.join(name), name, &[7], Transfer::ByReference).unwrap();
    }
    let text = |name: &str| std::fs::read_to_string(files.0.join(name)).unwrap();
    let line = |name: &str, key: &str| text(name).lines().find(|line| line.starts_with(key)).unwrap().to_owned();
    let mixed = format!("{}\n{}\n", line("one", "private_key"), line("other", "credential"));
    std::fs::write(files.0.join("one"), mixed).unwrap();
    let Err(error) = read_key(&files.0.join("one")) else { panic!("it was read") };
    assert!(error.to_string().contains("another private key"), "{error}");
}

#[test]
fn peers_are_read_with_their_rights() {
    let files = Files::new("peers");
    let crypto = &mut HostCrypto::new([1; 32], 1);
    let [one, other] = [("one", 1), ("other", 2)].map(|(name, kid)| {
        let credential = create_key(crypto, &files.0.join(name), name, &[kid], Transfer::ByReference).unwrap();
        crate::hex::to_hex(credential.as_bytes())
    });
    let peer = |name: &str, credential: &str, rest: &str| {
        format!("[[peer]]\nname = \"{name}\"\ncredential = \"{credential}\"\n{rest}\n")
    };
    let good = peer("a", &one, "allow = [\"GET /temp\"]") + &peer("b", &other, "");
    let peers = read_peers(&files.write("peers.toml", &good)).unwrap();
    assert_eq!(peers.len(), 2);
    assert_eq!(peers[0].allow.as_deref(), Some(&["GET /temp".to_owned()][..]));
    assert_eq!(peers[1].allow, None);
    // Peers choose their kids, so two peers can have the same one (RFC 9528, section 3.5.3).
    let same_kid = create_key(crypto, &files.0.join("third"), "third", &[1], Transfer::ByReference).unwrap();
    let same_kid = peer("a", &one, "") + &peer("b", &crate::hex::to_hex(same_kid.as_bytes()), "");
    assert_eq!(read_peers(&files.write("peers.toml", &same_kid)).unwrap().len(), 2);
    let wrong = [
        (peer("a", &one, "allow = [\"everything\"]"), "allow"),
        (peer("a", &one, "") + &peer("a", &other, ""), "another peer has this name"),
        (peer("a", &one, "") + &peer("b", &one, ""), "has the same one"),
        (peer("a", "00", ""), "CWT Claims Set"),
        (peer("a", "0", ""), "hexadecimal"),
        (peer("a", &one, "rights = 1"), "name, credential"),
    ];
    for (text, expected) in wrong {
        let error = read_peers(&files.write("peers.toml", &text)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("peers.toml:"), "{error}");
    }
}
