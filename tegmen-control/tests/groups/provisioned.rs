//! Tests of the file with which an operator provisions a member.

use super::world::{Counting, Devices, Keys, LAMPS, Scene, config, member, wait};
use std::os::unix::fs::PermissionsExt;
use tegmen::axiom::Rekeyed;
use tegmen_control::access::ace::Malformed;
use tegmen_host::group::member_file::{MemberFile, MemberFileError, NotAMemberFile};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::Signer as _;

/// Returns the file of the member `switch` in epoch 2, the public key of the controller, and the messages that begin
/// epoch 3.
fn file(scene: &Scene) -> (MemberFile, Vec<u8>, Vec<Vec<u8>>) {
    let devices = Devices::new();
    let controller = devices.controller(Counting::new(scene.database(), None));
    wait(controller.create(LAMPS, config(), &[member("hall", 1, true)])).unwrap();
    wait(controller.admit(LAMPS, &member("switch", 3, true))).unwrap();
    let keys = wait(controller.parameters(LAMPS, "switch")).unwrap();
    let controller_uri = Some("coaps://controller.example/ace-group/lamps".to_owned());
    let file = MemberFile { group: LAMPS.to_owned(), member: "switch".to_owned(), controller: controller_uri, keys };
    let next = wait(controller.rekey(LAMPS)).unwrap();
    let messages = next.messages.into_iter().map(|message| message.bytes).collect();
    (file, devices.signer.public_key().to_vec(), messages)
}

#[test]
fn a_member_continues_from_its_file() {
    let scene = Scene::new("provisioned");
    let (file, signer, messages) = file(&scene);
    let path = scene.0.join("switch.member");
    std::fs::write(&path, file.encode()).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let read = MemberFile::open(&path).unwrap();
    assert_eq!((read.group.as_str(), read.member.as_str()), (LAMPS, "switch"));
    assert_eq!(read.controller.as_deref(), Some("coaps://controller.example/ace-group/lamps"));
    assert_eq!((read.keys.epoch, read.keys.sender_id, read.keys.late.as_slice()), (2, Some(1), &[0][..]));
    assert_eq!(read.keys.controller.as_deref(), Some(signer.as_slice()));
    let crypto = &mut HostCrypto::from_os().unwrap();
    let mut keys = Keys::new(&read.keys.admission()).unwrap();
    let opened: Vec<_> =
        messages.iter().map(|message| keys.open(crypto, read.keys.controller.as_deref(), message).unwrap()).collect();
    assert_eq!(opened, [Rekeyed::Epoch]);
}

#[test]
fn a_file_that_others_can_read_or_that_is_something_else_is_refused() {
    let scene = Scene::new("provisioned-wrong");
    let path = scene.0.join("switch.member");
    let refused = |content: &[u8], mode: u32| {
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        MemberFile::open(&path).err().unwrap()
    };
    let right = file(&scene).0.encode();
    let exposed = refused(&right, 0o640);
    assert!(matches!(exposed, MemberFileError::Exposed { mode: 0o640, .. }), "{exposed}");
    assert!(exposed.to_string().contains("chmod 600"), "{exposed}");
    let not = |content: &[u8]| match refused(content, 0o600) {
        MemberFileError::Content(_, why) => why,
        other => panic!("{other}"),
    };
    assert_eq!(not(b"[[psk]]"), NotAMemberFile::Other);
    assert_eq!(not(&right[3..]), NotAMemberFile::Other);
    assert_eq!(not(&[&right[..], &[0; 5000]].concat()), NotAMemberFile::Malformed(Malformed::TooLong));
    // Of a later version nothing but the number is read.
    assert_eq!(not(b"\xd9\xd9\xf7\xa2\x00\x02\x01\x07"), NotAMemberFile::Version(2));
    assert_eq!(not(b"\xd9\xd9\xf7\xa1\x01\x61a"), NotAMemberFile::Malformed(Malformed::Missing(0)));
    assert!(matches!(MemberFile::open(&scene.0.join("none")), Err(MemberFileError::System(..))));
}

#[test]
fn a_file_that_is_cut_or_spoiled_anywhere_gives_a_file_or_an_error() {
    let scene = Scene::new("provisioned-spoiled");
    let right = file(&scene).0.encode();
    for at in 0..right.len() {
        assert!(MemberFile::parse(&right[..at]).is_err(), "{at} bytes");
        for change in [0x01, 0x20, 0x80, 0xff] {
            let mut spoiled = right.to_vec();
            spoiled[at] ^= change;
            if let Ok(read) = MemberFile::parse(&spoiled) {
                assert!(read.encode().len() <= MemberFile::MAX);
            }
        }
    }
}
