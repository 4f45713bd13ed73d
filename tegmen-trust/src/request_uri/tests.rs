use super::*;
use proptest::prelude::*;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, HEADER_LEN, MessageType};

/// Lets `read` read a GET with these options, once unprotected and once protected. Both results must be the same.
fn read<T: PartialEq + std::fmt::Debug>(
    number: OptionNumber,
    values: &[&[u8]],
    read: impl Fn(&MessageRef<'_>) -> T,
) -> T {
    let mut storage = [0; 2048];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 7, &[]).unwrap();
    for value in values {
        builder.option(number, value).unwrap();
    }
    builder.option(OptionNumber::ACCEPT, &[]).unwrap();
    let bytes = frame.bytes();
    let plaintext = [&[Code::GET.0], &bytes[HEADER_LEN..]].concat();
    let inside = read(&MessageRef::parse(&bytes[..HEADER_LEN]).unwrap().with_plaintext(&plaintext).unwrap());
    assert_eq!(read(&MessageRef::parse(bytes).unwrap()), inside);
    inside
}

fn path(segments: &[&[u8]]) -> Result<String, InvalidUri> {
    read(OptionNumber::URI_PATH, segments, |message| Path::of(message).map(|path| path.to_string()))
}

#[test]
fn each_rule_of_a_path_holds() {
    for (segments, expected) in [
        (&[][..], Ok("/")),
        (&[b"a".as_slice()], Ok("/a")),
        (&[b"a", b"b c", "é".as_bytes()], Ok("/a/b c/é")),
        (&[b"a", b""], Ok("/a/")),
        (&[b"..."], Ok("/...")),
        (&[b"%2F"], Ok("/%2F")),
        (&[b""], Err(InvalidUri::Empty)),
        (&[b"", b"a"], Err(InvalidUri::Empty)),
        (&[b"a", b"", b"b"], Err(InvalidUri::Empty)),
        (&[b"a", b"", b""], Err(InvalidUri::Empty)),
        (&[b"a/b"], Err(InvalidUri::Slash)),
        (&[b"/"], Err(InvalidUri::Slash)),
        (&[b"."], Err(InvalidUri::Dots)),
        (&[b"a", b".."], Err(InvalidUri::Dots)),
        (&[b"a", b"\xff"], Err(InvalidUri::NotUtf8)),
        // An overlong slash.
        (&[b"\xc0\xaf"], Err(InvalidUri::NotUtf8)),
    ] {
        assert_eq!(path(segments), expected.map(str::to_owned), "{segments:?}");
    }
}

#[test]
fn a_query_is_read_by_name_and_in_order() {
    let of = |arguments: &[&[u8]]| {
        read(OptionNumber::URI_QUERY, arguments, |message| {
            let query = Query::of(message)?;
            Ok((query.arguments().map(str::to_owned).collect::<Vec<_>>(), query.get("n").map(str::to_owned)))
        })
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(of(&[]), Ok((vec![], None)));
    assert_eq!(
        of(&[b"m=1".as_slice(), b"n=2=3", b"n=4"]),
        Ok((texts(&["m=1", "n=2=3", "n=4"]), Some("2=3".to_owned())))
    );
    assert_eq!(of(&[b"".as_slice(), b"n"]), Ok((texts(&["", "n"]), Some(String::new()))));
    assert_eq!(of(&[b"a&n=1"]), Ok((texts(&["a&n=1"]), None)));
    assert_eq!(of(&[b"n=1".as_slice(), b"\xff"]), Err(InvalidUri::NotUtf8));
}

proptest! {
    /// Two different valid paths have different texts, and `path_is` agrees with [`Path`].
    #[test]
    fn a_valid_path_has_one_text(segments: [Vec<String>; 2]) {
        let views = segments.each_ref().map(|segments| {
            let segments: Vec<&[u8]> = segments.iter().map(String::as_bytes).take(4).collect();
            let segments: Vec<&[u8]> = segments.into_iter().map(|segment| &segment[..segment.len().min(200)]).collect();
            read(OptionNumber::URI_PATH, &segments, |message| {
                let path = Path::of(message).ok()?;
                let (text, bytes) = (path.to_string(), path.bytes().collect::<Vec<u8>>());
                assert_eq!(text.as_bytes(), bytes);
                assert!(message.path_is(&text[1..]), "{text}");
                Some((segments.iter().map(|segment| segment.to_vec()).collect::<Vec<_>>(), text))
            })
        });
        if let [Some((one, text)), Some((other, other_text))] = views {
            prop_assert_eq!(one == other, text == other_text);
        }
    }

    /// [`super::read`] gives the same verdict as [`Path`] and [`Query`]. The text that it returns has the segments of
    /// the path, joined by slashes.
    #[test]
    fn one_pass_agrees_with_the_views(
        segments in prop::collection::vec(prop::sample::select(PARTS), 0..4),
        arguments in prop::collection::vec(prop::sample::select(PARTS), 0..3),
    ) {
        let mut storage = [0; 256];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 7, &[]).unwrap();
        builder.option(OptionNumber::ETAG, b"tag").unwrap();
        segments.iter().for_each(|value| builder.option(OptionNumber::URI_PATH, value).unwrap());
        builder.option(OptionNumber::CONTENT_FORMAT, &[]).unwrap();
        arguments.iter().for_each(|value| builder.option(OptionNumber::URI_QUERY, value).unwrap());
        builder.option(OptionNumber::BLOCK1, &[0x0e]).unwrap();
        let bytes = frame.bytes();
        let plaintext = [&[Code::GET.0], &bytes[HEADER_LEN..]].concat();
        let inside = MessageRef::parse(&bytes[..HEADER_LEN]).unwrap().with_plaintext(&plaintext).unwrap();
        let joined = segments.iter().map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join("/");
        for message in [MessageRef::parse(bytes).unwrap(), inside] {
            let views = Path::of(&message).and_then(|_| Query::of(&message).map(drop));
            let mut text = "of the request before".to_owned();
            prop_assert_eq!(super::read(&message, &mut text), views);
            prop_assert_eq!(&text, &joined);
        }
    }
}

/// Segments and arguments, both valid and invalid.
const PARTS: &[&[u8]] = &[b"a", b"sensors", b"", b".", b"..", b"a/b", b"\xff", "é".as_bytes()];
