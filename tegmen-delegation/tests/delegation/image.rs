//! Tests the messages and the memory of the firmware image `dtls_delegated`.

use crate::memory::written;
use crate::world::{TIME, delegation};
use tegmen::crypto::Compact;
use tegmen::dtls::Handle;
use tegmen::secret::Secret;
use tegmen_delegation::{DeviceKey, Epoch, FlashMemory, Go, HandedOver, Issuer, LONGEST_TICKET, Request};
use tegmen_flash::{Flash, Page, RECORD_LEN};

#[path = "../../../firmware/src/delegated.rs"]
mod delegated;

#[derive(Default)]
struct Pages([Vec<u8>; 2]);

impl Flash for Pages {
    type Error = ();
    const PAGE_LEN: usize = 1024;

    fn read(&self, _: Page, _: usize, _: &mut [u8; RECORD_LEN]) {}

    fn program(&mut self, page: Page, at: usize, record: &[u8; RECORD_LEN]) -> Result<(), ()> {
        let page = &mut self.0[page as usize];
        page.resize(at, 0xff);
        page.extend_from_slice(record);
        Ok(())
    }

    fn erase(&mut self, page: Page) -> Result<(), ()> {
        self.0[page as usize].clear();
        Ok(())
    }
}

#[test]
fn the_image_has_the_messages_of_a_server() {
    let key = DeviceKey(Secret::new([7; 32]));
    let epoch = Epoch::first(key).next::<Compact>(&Secret::new([8; 32])).unwrap();
    let flash = FlashMemory::format(Pages::default(), &epoch).unwrap().into_flash();
    let check = epoch.check::<Compact>();
    let mut room = [0; LONGEST_TICKET];
    let mut issuer = Issuer::new(epoch, None, 0);
    let ticket = issuer.seal(&mut Compact::new([3; 32]), &delegation(1, 0), &mut room).unwrap().0.to_vec();
    let kept = delegation(2, 0).state().unwrap();
    let session = HandedOver { state: kept.expose(), handle: Handle::Id(&[5; 32]), opens: true };
    let peer = tegmen::address::Address { ip: delegated::PEER, port: 5684, scope: 0 };
    let expected: [(&str, Vec<u8>, &[u8]); 6] = [
        ("MEMORY", flash.0[1].clone(), &delegated::MEMORY),
        ("SET_TIME", written(&Request::Epoch { number: 1, time: TIME, check }), &delegated::SET_TIME),
        ("TICKET", ticket, &delegated::TICKET),
        ("KEEP_TO_OPEN", written(&Request::Keep(session)), &delegated::KEEP_TO_OPEN),
        ("GO", written(&Request::Go { go: Go { number: 2, peer }, server_name: b"" }), &delegated::GO),
        ("REFUSE", written(&Request::Refuse(1)), &delegated::REFUSE),
    ];
    let stale: Vec<_> = expected.iter().filter(|(_, now, then)| now != then).collect();
    for (name, now, _) in &stale {
        println!("pub const {name}: [u8; {}] = {now:?};", now.len());
    }
    assert!(stale.is_empty(), "firmware/src/delegated.rs is stale: take the lines above");
}
