//! Tests the memory of a device under power cuts, and the messages of the device.

use crate::world::recorder::Recorder;
use crate::world::{Model, TIME, boot, delegation, first_epoch, in_first_epoch, key};
use proptest::prelude::*;
use tegmen::address::Address;
use tegmen::buf::Writer;
use tegmen::dtls::Handle;
use tegmen::secret::Secret;
use tegmen_delegation::{Epoch, FlashMemory, Go, HandedOver, Memory as _, Request, Resource, STATE_LEN, Status};

/// Returns the memory in the pages of `flash`, and the epoch that the memory contains.
fn loaded(flash: Model) -> (FlashMemory<Model>, Epoch) {
    let (mut memory, mut epoch) = (FlashMemory::new(flash), Epoch::first(key(0)));
    assert_eq!(memory.load(&mut epoch, &mut []), Ok(0));
    (memory, epoch)
}

#[test]
fn a_power_cut_at_any_byte_leaves_one_of_two_epochs_whole() {
    let next = first_epoch(1, [1; 32]);
    let mut epochs = [0; 2];
    for cut in 0..600 {
        let mut memory = FlashMemory::format(Model::new(), &Epoch::first(key(1))).unwrap();
        // Something is in the other page already.
        memory.keep_epoch(&Epoch::first(key(1))).unwrap();
        let mut flash = memory.into_flash();
        flash.power = Some(cut);
        let (mut memory, _) = loaded(flash);
        let kept = memory.keep_epoch(&next).is_ok();
        let mut flash = memory.into_flash();
        flash.power = None;
        let (_, epoch) = loaded(flash);
        assert!(epoch.number == 1 || !kept, "cut {cut}");
        epochs[usize::from(epoch.number)] += 1;
        let expected = if epoch.number == 1 { &next.key } else { &key(1) };
        assert_eq!(epoch.key.0.expose(), expected.0.expose());
    }
    assert!(epochs.iter().all(|count| *count > 0), "{epochs:?}");
}

#[test]
fn a_power_cut_loses_no_refused_connection_that_was_acknowledged() {
    for cut in 0..100 {
        let (device, _) = in_first_epoch(1);
        let mut flash = device.into_memory().into_flash();
        flash.power = Some(cut);
        let mut device = boot(flash);
        let refused: Vec<u32> = (10..14).filter(|number| device.refuse(*number).is_ok()).collect();
        // At once it refuses those as well that were not kept.
        assert!((10..14).all(|number| device.is_refused(number)));
        let mut flash = device.into_memory().into_flash();
        flash.power = None;
        let device = boot(flash);
        assert!(refused.iter().all(|number| device.is_refused(*number)), "cut {cut}: {refused:?}");
    }
}

pub fn written(request: &Request<'_>) -> Vec<u8> {
    let mut room = [0; 256];
    let mut writer = Writer::new(&mut room);
    request.write(&mut writer).unwrap();
    writer.written().to_vec()
}

/// The hardware may report an error although it has written the whole record. The device then writes the record again,
/// before any other record.
#[test]
fn a_connection_that_is_kept_twice_takes_one_place_of_the_list() {
    let mut memory = FlashMemory::format(Model::new(), &Epoch::first(key(1))).unwrap();
    for number in [10, 10, 11, 11] {
        memory.keep_refused(0, number).unwrap();
    }
    let (mut epoch, mut refused) = (Epoch::first(key(2)), [0; 2]);
    assert_eq!(FlashMemory::new(memory.into_flash()).load(&mut epoch, &mut refused).ok(), Some(2));
    assert_eq!(refused, [10, 11]);
}

#[test]
fn requests_are_read_as_they_were_written() {
    let peer = Address { ip: [7; 16], port: 5684, scope: 0 };
    let kept = delegation(5, 3).state().unwrap();
    let requests = [
        Request::Epoch { number: 40_000, time: TIME, check: [3; 8] },
        Request::Refuse(70_000),
        Request::Go { go: Go { number: 5, peer }, server_name: b"" },
        Request::Go { go: Go { number: 5, peer }, server_name: b"hub.example" },
        Request::Keep(HandedOver { state: kept.expose(), handle: Handle::Ticket(&[9; 40]), opens: true }),
        Request::Status,
    ];
    for request in &requests {
        let bytes = written(request);
        let again = Request::read(request.resource(), &bytes).unwrap();
        assert_eq!(written(&again), bytes);
        // The handle of a session and a server_name have no length of their own: a part of one is another one.
        let (whole, may_follow) = match request {
            Request::Keep(_) => (1 + STATE_LEN, true),
            Request::Go { .. } => (22, true),
            Request::Status => (0, true),
            _ => (bytes.len(), false),
        };
        for cut in 0..whole {
            assert!(Request::read(request.resource(), &bytes[..cut]).is_err());
        }
        assert_eq!(Request::read(request.resource(), &[&bytes[..], &[0]].concat()).is_ok(), may_follow);
    }
    assert_eq!(written(&requests[1]), [0, 1, 0x11, 0x70]);
    assert_eq!(written(&requests[3])[22..], *b"hub.example");
    let mut kept = written(&requests[4]);
    kept[0] = 4;
    assert!(Request::read(Resource::Keep, &kept).is_err(), "an unknown flag");
    let (device, _) = in_first_epoch(1);
    let mut room = [0; 64];
    let mut writer = Writer::new(&mut room);
    device.status().write(&mut writer).unwrap();
    assert_eq!(Status::read(writer.written()), Ok(device.status()));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        resource in prop::sample::select(&Resource::ALL[..]),
        bytes in prop::collection::vec(any::<u8>(), 0..160),
    ) {
        let _ = Request::read(resource, &bytes);
        let _ = Status::read(&bytes);
    }
}

#[test]
fn keys_of_epochs_differ_and_do_not_lead_back() {
    let zero = Epoch::first(key(1));
    let one = zero.next::<Recorder>(&Secret::new([1; 32])).unwrap();
    let other = zero.next::<Recorder>(&Secret::new([2; 32])).unwrap();
    assert_eq!(one.key.0.expose(), other.key.0.expose(), "the device key does not depend on the session");
    assert_ne!(one.tickets.0.expose(), other.tickets.0.expose());
    assert_ne!(one.key.0.expose(), zero.key.0.expose());
    let last = Epoch { number: u16::MAX, ..Epoch::first(key(1)) };
    assert!(last.next::<Recorder>(&Secret::new([1; 32])).is_none());
}
