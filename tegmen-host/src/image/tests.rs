#![expect(clippy::single_range_in_vec_init, reason = "a list of gaps may have one")]

use super::*;
use proptest::prelude::*;

#[test]
fn a_name_is_read_as_it_is_written() {
    let id = ImageId::new(&crate::digest::sha256(b"firmware"), 300_000);
    assert_eq!(id.to_string().parse(), Ok(id));
    for wrong in
        ["", "3f9a12bc44d0e1f2", "3f9a12bc44d0e1f2:", "3f9a12bc44d0e1f2:0", "3f9a12bc44d0e1f2:+5", "3f9a:5", "x:5"]
    {
        assert_eq!(wrong.parse::<ImageId>(), Err(ImageIdError), "{wrong}");
    }
    assert_eq!("3f9a12bc44d0e1f2:4294967296".parse::<ImageId>(), Err(ImageIdError));
}

#[test]
fn a_part_begins_and_ends_with_a_unit_or_the_image() {
    for (start, len, units) in [
        (0, 64, Some(0..1)),
        (64, 128, Some(1..3)),
        (192, 8, Some(3..4)),
        (192, 9, None),
        (0, 63, None),
        (1, 64, None),
        (256, 64, None),
        (0, 0, None),
        (u32::MAX - 63, usize::MAX, None),
    ] {
        assert_eq!(units_of(start, len, 200), units, "{start} {len}");
    }
}

#[test]
fn images_that_cannot_be_sent_are_refused() {
    let refused = |image: &[u8], block| ImageTransfer::new(image, block).unwrap_err();
    assert_eq!(refused(b"", 64), NotAnImage::Empty);
    for block in [0, 16, 32, 100, 2048] {
        assert_eq!(refused(b"x", block), NotAnImage::Block);
    }
    let large = vec![0; (64 << 20) + 1];
    assert!(matches!(refused(&large, 64), NotAnImage::TooLarge { max: 67_108_864, .. }));
    assert!(ImageTransfer::new(&large, 128).is_ok());
}

#[test]
fn a_sender_gives_up_if_no_member_gets_further_and_waits_for_one_that_is_busy() {
    let (one, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
    let mut transfer = ImageTransfer::new(&[7; 1000], 256).unwrap();
    assert_eq!(transfer.blocks().count(), 0, "nobody lacks anything yet");
    transfer.note(one, ImageReport::Lacks(vec![4..5, 9..16]));
    assert_eq!(transfer.advance(false), Advance::Again);
    let sent: Vec<_> = transfer.blocks().map(|(block, bytes)| (block.number, block.more, bytes.len())).collect();
    assert_eq!(sent, [(1, true, 256), (2, true, 256), (3, false, 232)]);
    transfer.note(one, ImageReport::Complete(*transfer.digest()));
    assert_eq!(transfer.advance(false), Advance::Done);
    assert_eq!(transfer.advance(true), Advance::Again, "the other one is missing");
    transfer.note(other, ImageReport::Busy([3; 8]));
    for _ in 0..10 {
        assert_eq!(transfer.advance(false), Advance::Again);
    }
    transfer.note(other, ImageReport::Lacks(vec![0..1]));
    let steps: Vec<_> = (0..4).map(|_| transfer.advance(false)).collect();
    assert_eq!(steps, [Advance::Again, Advance::Again, Advance::Again, Advance::GivenUp]);
    transfer.note(other, ImageReport::TooLarge(10));
    assert_eq!(transfer.advance(true), Advance::Again, "another one is missing");
    assert_eq!(transfer.advance(false), Advance::GivenUp, "it never takes the image");
    transfer.note(other, ImageReport::Complete([0; 32]));
    assert_eq!(transfer.advance(false), Advance::GivenUp, "it is another image with the same name");
}

/// Generates sets of units, each with the number of units of its image.
fn sets() -> impl Strategy<Value = (u32, Vec<std::ops::Range<u32>>)> {
    (1..3000_u32).prop_flat_map(|count| {
        let range = (0..count, 1..80_u32).prop_map(|(start, len)| start..start + len);
        (Just(count), proptest::collection::vec(range, 0..60))
    })
}

proptest! {
    #[test]
    fn the_gaps_are_all_units_that_are_not_there((count, parts) in sets()) {
        let mut units = Units::none(count);
        let mut model = std::collections::BTreeSet::new();
        for part in parts {
            let before = model.len();
            model.extend(part.clone().filter(|unit| *unit < count));
            prop_assert_eq!(units.add(part) as usize, model.len() - before);
        }
        let missing: Vec<u32> = units.gaps().flatten().collect();
        let expected: Vec<u32> = (0..count).filter(|unit| !model.contains(unit)).collect();
        prop_assert_eq!(units.is_whole(), missing.is_empty());
        prop_assert_eq!(missing, expected);
        let (at, bytes) = units.bytes(&(0..count));
        prop_assert_eq!(at, 0);
        prop_assert_eq!(Units::read(count, bytes.to_vec()), Some(units.clone()));
    }

    #[test]
    fn a_report_is_read_as_it_is_written_and_as_long_as_it_may_be((count, parts) in sets(), longest in 16..1024_usize) {
        let mut units = Units::none(count);
        for part in parts {
            units.add(part);
        }
        let report = ImageReport::of_gaps(units.gaps(), longest);
        let written = report.write();
        prop_assert!(written.len() <= longest, "{} of {longest}", written.len());
        let id = ImageId { digest: [1; 8], size: count * UNIT };
        prop_assert_eq!(ImageReport::read(&written, id), Ok(report.clone()));
        let ImageReport::Lacks(ranges) = report else { panic!("units are missing") };
        let all: Vec<_> = units.gaps().collect();
        prop_assert!(all.starts_with(&ranges));
        prop_assert_eq!(ranges.is_empty(), all.is_empty());
    }

    #[test]
    fn a_report_of_any_bytes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), size in 1..100_000_u32) {
        let id = ImageId { digest: [1; 8], size };
        if let Ok(ImageReport::Lacks(gaps)) = ImageReport::read(&bytes, id) {
            let mut end = None;
            for gap in gaps {
                prop_assert!(end.is_none_or(|end| gap.start > end) && gap.start < gap.end && gap.end <= id.units());
                end = Some(gap.end);
            }
        }
    }
}

#[test]
fn a_report_that_says_nothing_is_refused() {
    let id = ImageId { digest: [1; 8], size: 640 };
    let read = |hex| ImageReport::read(&from_hex(hex).unwrap(), id).is_ok();
    assert!(read("a10280") && read("a102820001") && read("a102820109"));
    // No entry; an odd array; a gap after the end; an empty gap; two gaps beside each other; a digest that is too short.
    for wrong in ["a0", "a1028101", "a10282010a", "a102820100", "a1028400010001", "a1014100", "", "a1"] {
        assert!(!read(wrong), "{wrong}");
    }
}
