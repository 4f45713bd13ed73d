use super::*;
use crate::delegate::{Delegated, Proved};
use std::sync::Mutex;
use tegmen::buf::Writer;
use tegmen::dtls::SessionState;

/// A delegate whose devices have the names `device1`, `device2` and so on. When the credentials of a device are
/// requested, the delegate adds the number of the device to this list.
#[derive(Default)]
struct Numbered(Mutex<Vec<u32>>);

impl Delegate for Numbered {
    fn device(&self, server_name: &[u8]) -> Option<u32> {
        assert!(server_name.iter().all(|byte| !byte.is_ascii_uppercase()));
        std::str::from_utf8(server_name).ok()?.strip_prefix("device")?.parse().ok()
    }

    fn credentials(&self, device: u32) -> Option<Arc<PublicKeys>> {
        self.0.lock().unwrap().push(device);
        (device != 1000).then(|| Arc::new(PublicKeys::new(Suites::GCM)))
    }

    fn seal(&self, _: u32, _: Option<Proved<'_>>, _: &SessionState, _: &mut Writer<'_>) -> Option<u32> {
        None
    }

    fn open(&self, _: u32, _: &[u8]) -> Option<Delegated> {
        None
    }

    fn find(&self, _: u32, _: &[u8]) -> Option<Delegated> {
        None
    }

    fn remember(&self, _: u32, _: Option<Proved<'_>>, _: &[u8], _: &SessionState) {}
}

#[test]
fn names_are_those_of_devices_in_either_case() {
    let keys = ServerKeys::new(PublicKeys::default(), Some(Arc::new(Numbered::default())));
    assert_eq!(keys.server(b"Device7"), Some(7));
    assert_eq!(keys.server(b""), Some(0));
    assert_eq!(keys.server(b"lamp"), Some(0));
    assert_eq!(keys.server(&[b'1'; 300]), Some(0));
    assert_eq!(ServerKeys::new(PublicKeys::default(), None).server(b"device7"), Some(0));
}

#[test]
fn credentials_of_devices_are_asked_for_once_until_they_are_forgotten() {
    let devices = Arc::new(Numbered::default());
    let mut keys = ServerKeys::new(PublicKeys::new(Suites::CCM_8), Some(devices.clone()));
    for _ in 0..2 {
        // Some of them are in one list.
        for device in [1, 2, 1025, 2049, 1000] {
            let expected = if device != 1000 { Suites::GCM } else { Suites::CCM_8 };
            assert_eq!(keys.suites(device).0, expected.0);
            assert!(keys.credential(device, 0).is_none() && keys.key(device, 0).is_none());
        }
    }
    assert_eq!(*devices.0.lock().unwrap(), [1, 2, 1025, 2049, 1000]);
    keys.forget_devices();
    assert_eq!((keys.suites(65).0, keys.suites(0).0), (Suites::GCM.0, Suites::CCM_8.0));
    assert_eq!(devices.0.lock().unwrap()[5..], [65]);
}
