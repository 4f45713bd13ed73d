use super::*;
use proptest::prelude::*;

/// The time of the resolution, in seconds since 1970.
const NOW: f64 = 1_700_000_000.0;

#[test]
fn the_examples_of_rfc_8428_section_5_1() {
    // 5.1.2, and its resolution as 5.1.4 resolves.
    let pack =
        br#"[{"bn":"urn:dev:ow:10e2073a01080063:","n":"voltage","u":"V","v":120.1},{"n":"current","u":"A","v":1.2}]"#;
    let records = from_json(pack).unwrap();
    assert_eq!(to_json(&records).unwrap(), pack);
    let resolved = resolve(&records, NOW);
    assert_eq!(resolved[1].n.as_deref(), Some("urn:dev:ow:10e2073a01080063:current"));
    assert_eq!((resolved[1].u.as_deref(), resolved[1].v), (Some("A"), Some(1.2)));
    assert_eq!(
        table(&records, NOW),
        "urn:dev:ow:10e2073a01080063:voltage  120.1 V\nurn:dev:ow:10e2073a01080063:current    1.2 A"
    );
    // 5.1.3: base time and unit.
    let pack = br#"[{"bn":"urn:dev:ow:10e2073a0108006:","bt":1.276020076001e+09,"bu":"A","bver":5,"n":"voltage","u":"V","v":120.1},{"n":"current","t":-5,"v":1.2}]"#;
    let resolved = resolve(&from_json(pack).unwrap(), NOW);
    assert_eq!((resolved[1].u.as_deref(), resolved[1].t), (Some("A"), Some(1_276_020_071.001)));
}

#[test]
fn a_field_that_must_be_understood_refuses_the_pack() {
    assert!(from_json(br#"[{"n":"a","v":1,"new_":2}]"#).is_err());
    assert!(from_json(br#"[{"n":"a","v":1,"new":2}]"#).is_ok());
    assert!(from_json(b"{}").is_err());
}

/// Reads a pack in JSON, and does not check its records. Returns the records, and the pack in CBOR.
fn unchecked(pack: &str) -> (Vec<Record>, Vec<u8>) {
    let records: Vec<Record> = serde_json::from_str(pack).unwrap();
    let mut encoder = Encoder::new(Vec::new());
    write_pack(&mut encoder, &records).unwrap();
    (records, encoder.into_writer())
}

/// Checks that both readers and both writers accept a pack, or refuse the pack with an error that contains the text in
/// `expected`.
fn both_ways(pack: &str, expected: Result<(), &str>) {
    let (records, cbor) = unchecked(pack);
    let written = [to_json(&records), to_cbor(&records)].map(|pack| pack.map(|_| records.clone()));
    for result in [from_json(pack.as_bytes()), from_cbor(&cbor)].into_iter().chain(written) {
        match (result, expected) {
            (Ok(read), Ok(())) => assert_eq!(read, records),
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{pack}: {error}"),
            (result, _) => panic!("{pack}: {result:?}"),
        }
    }
}

#[test]
fn a_pack_of_a_later_version_or_of_two_versions_is_refused() {
    both_ways(r#"[{"bver":10,"n":"a","v":1},{"n":"b","v":1}]"#, Ok(()));
    both_ways(r#"[{"n":"a","v":1},{"bver":10,"n":"b","v":1}]"#, Ok(()));
    both_ways(r#"[{"bver":5,"n":"a","v":1},{"bver":5,"n":"b","v":1}]"#, Ok(()));
    both_ways(r#"[{"bver":11,"n":"a","v":1}]"#, Err("record 1: version 11"));
    both_ways(r#"[{"bver":0,"n":"a","v":1}]"#, Err("record 1: version 0"));
    both_ways(r#"[{"n":"a","v":1},{"bver":5,"n":"b","v":1}]"#, Err("record 2: version 5"));
    both_ways(r#"[{"bver":5,"n":"a","v":1},{"n":"b","v":1},{"bver":10,"v":1}]"#, Err("record 3: version 10"));
}

#[test]
fn an_unknown_label_in_cbor_is_ignored_unless_it_must_be_understood() {
    let read = |label: &[u8]| from_cbor(&[&[0x81, 0xa3], label, &[0x01, 0x00, 0x61, b'a', 0x02, 0x01]].concat());
    let record = Record { n: Some("a".to_owned()), v: Some(1.0), ..Record::default() };
    let unknown: [&[u8]; 12] = [
        &[0x09],
        &[0x18, 127],
        &[0x18, 128],
        &[0x18, 255],
        &[0x19, 0x01, 0x2c],
        &[0x26],
        &[0x38, 0x80],
        &[0x3b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x62, b'_', b'b'],
        &[0x7f, 0x62, b'a', b'_', 0x61, b'b', 0xff],
        &[0x41, b'_'],
        &[0x81, 0xf5],
    ];
    for label in unknown {
        assert_eq!(read(label).as_ref(), Ok(&vec![record.clone()]), "{label:02x?}");
    }
    let understood: [&[u8]; 4] = [
        &[0x62, b'a', b'_'],
        &[0x7f, 0x62, b'a', b'_', 0xff],
        &[0x7f, 0x61, b'a', 0x61, b'_', 0xff],
        &[0x7f, 0x62, b'a', b'_', 0x60, 0xff],
    ];
    for label in understood {
        assert!(read(label).unwrap_err().to_string().contains("must be understood"), "{label:02x?}");
    }
}

#[test]
fn resolved_records_have_the_version_unless_it_is_10_and_the_base_sum() {
    let versions =
        |pack: &str| -> Vec<_> { resolve(&unchecked(pack).0, NOW).iter().map(|record| record.bver).collect() };
    assert_eq!(versions(r#"[{"bver":5,"n":"a","v":1},{"n":"b","v":1}]"#), [Some(5), Some(5)]);
    assert_eq!(versions(r#"[{"bver":10,"n":"a","v":1},{"n":"b","v":1}]"#), [None, None]);
    assert_eq!(versions(r#"[{"n":"a","v":1}]"#), [None]);
    // RFC 8428, section 4.5.4.
    let pack = r#"[{"n":"a","v":1},{"bs":5,"n":"a","v":1},{"n":"a","v":1,"s":2},{"n":"a","s":3}]"#;
    let sums: Vec<_> = resolve(&unchecked(pack).0, NOW).iter().map(|record| record.s).collect();
    assert_eq!(sums, [None, Some(5.0), Some(7.0), Some(8.0)]);
}

#[test]
fn a_record_has_one_value_or_a_sum() {
    let valid = [
        // The first record of RFC 8428, section 5.1.7, has no measurement.
        r#"[{"bn":"urn:dev:ow:10e2073a01080063:"},{"n":"temp","u":"Cel","v":23.1}]"#,
        r#"[{"n":"a","vs":""},{"n":"a","vb":false},{"n":"a","vd":""},{"n":"a","s":1},{"n":"a","s":1,"v":2}]"#,
    ];
    for pack in valid {
        both_ways(pack, Ok(()));
    }
    for regular in [r#""n":"a""#, r#""n":"a","bv":1,"bs":1"#, r#""u":"V""#, r#""t":1"#, r#""ut":1"#] {
        both_ways(
            &format!(r#"[{{"bn":"a","v":1}},{{{regular}}}]"#),
            Err("record 2: there is neither a value nor a sum"),
        );
    }
    let values = [r#""v":1"#, r#""vs":"a""#, r#""vb":true"#, r#""vd":"""#];
    for (place, one) in values.iter().enumerate() {
        for other in &values[..place] {
            both_ways(&format!(r#"[{{"n":"a","s":1,{one},{other}}}]"#), Err("record 1: there are 2 values"));
        }
    }
    assert!(from_json(br#"[{"n":"a","v":null}]"#).is_err());
    assert!(to_cbor(&[Record { n: Some("a".to_owned()), vd: Some("*".to_owned()), ..Record::default() }]).is_err());
    // A field with an unknown label can contain the value of a record.
    let unknown = from_json(br#"[{"n":"a","vlo":"1:2"}]"#).unwrap();
    assert_eq!(resolve(&unknown, NOW), []);
    assert!(from_cbor(&[0x81, 0xa2, 0x00, 0x61, b'a', 0x61, b'x', 0x01]).is_ok());
    assert!(to_json(&unknown).is_err());
}

#[test]
fn a_complete_name_has_the_characters_of_the_rfc() {
    for (base, name) in [("a", ""), ("", "Z"), ("urn:dev:ow:10e2/", "-:./_9"), ("9", "_"), ("2001:db8::2/", "t")] {
        both_ways(&format!(r#"[{{"bn":"{base}","n":"{name}","v":1}}]"#), Ok(()));
    }
    // The base name of an earlier record still applies. A base name in a record without a measurement is not a complete
    // name.
    both_ways(r#"[{"bn":"a"},{"n":"_","v":1},{"bn":"_"}]"#, Ok(()));
    for (base, name) in [("", ""), ("_", "a"), ("", "/a"), ("a", " "), ("a", "é"), ("a", "?"), ("a%", "b"), ("a", "@")]
    {
        let pack = format!(r#"[{{"n":"a","v":1}},{{"bn":"{base}","n":"{name}","v":1}}]"#);
        both_ways(&pack, Err(&format!("record 2: the name {:?}", format!("{base}{name}"))));
    }
}

#[test]
fn a_number_in_cbor_has_no_tag_other_than_that_of_a_decimal_fraction() {
    let read = |value: &[u8]| from_cbor(&[&[0x81, 0xa2, 0x00, 0x61, b'a', 0x02], value].concat());
    // The first number is 273.15, the example of RFC 8949, section 3.4.4.
    for (value, number) in [(&[0xc4, 0x82, 0x21, 0x19, 0x6a, 0xb3][..], 273.15), (&[0xc4, 0x82, 0x20, 0x0f], 1.5)] {
        assert_eq!(read(value).unwrap()[0].v, Some(number));
    }
    // A bigfloat, two decimal fractions (tag 4) whose arrays have another length, and a time.
    let others: [&[u8]; 4] = [
        &[0xc5, 0x82, 0x21, 0x19, 0x6a, 0xb3],
        &[0xc4, 0x83, 0x21, 0x01, 0x01],
        &[0xc4, 0x81, 0x21],
        &[0xc1, 0x82, 0x21, 0x01],
    ];
    for value in others {
        assert!(read(value).is_err(), "{value:02x?}");
    }
}

/// RFC 8949, sections 3.4.3 and 3.4.4.
#[test]
fn the_mantissa_of_a_decimal_fraction_has_up_to_128_bits() {
    let read = |value: &[u8]| from_cbor(&[&[0x81, 0xa2, 0x00, 0x61, b'a', 0x02], value].concat());
    let long = |tag: u8, len: u8, last: u8| {
        let zeros = vec![0; usize::from(len.saturating_sub(2))];
        [&[0xc4, 0x82, 0x21, tag, 0x40 | len], &zeros[..], &[0x6a, last]].concat()
    };
    let max = [&[0xc4, 0x82, 0x00, 0xc2, 0x50][..], &[0xff; 16]].concat();
    let numbers: [(&[u8], f64); 7] = [
        (&long(0xc2, 2, 0xb3), 273.15),
        (&long(0xc3, 2, 0xb2), -273.15),
        // The bytes begin with zeros.
        (&long(0xc2, 20, 0xb3), 273.15),
        (&[0xc4, 0x82, 0x00, 0xc2, 0x40], 0.0),
        (&[0xc4, 0x82, 0x00, 0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 18_446_744_073_709_551_615.0),
        (&[0xc4, 0x82, 0x3b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], 0.0),
        (&max, 340_282_366_920_938_463_463_374_607_431_768_211_455.0),
    ];
    for (value, number) in numbers {
        assert_eq!(read(value).unwrap()[0].v, Some(number), "{value:02x?}");
    }
    let above = [&[0xc4, 0x82, 0x00, 0xc2, 0x51, 0x01][..], &[0; 16]].concat();
    // A bignum is valid only as a mantissa, and a mantissa has no tag other than those of bignums.
    let others: [&[u8]; 4] =
        [&above, &[0xc2, 0x41, 0x01], &[0xc4, 0x82, 0x21, 0xc4, 0x41, 0x01], &[0xc4, 0x82, 0xc2, 0x41, 0x01, 0x01]];
    for value in others {
        assert!(read(value).is_err(), "{value:02x?}");
    }
}

/// A number is a JSON number (RFC 8428, section 5), also in CBOR.
#[test]
fn a_number_that_is_infinite_or_none_is_refused() {
    let of = |number| {
        let record = || Record { n: Some("a".to_owned()), v: Some(1.0), ..Record::default() };
        [
            Record { v: Some(number), ..record() },
            Record { s: Some(number), ..record() },
            Record { t: Some(number), ..record() },
            Record { ut: Some(number), ..record() },
            Record { bt: Some(number), ..record() },
            Record { bv: Some(number), ..record() },
            Record { bs: Some(number), ..record() },
        ]
    };
    for record in of(f64::MAX).into_iter().chain(of(f64::MIN_POSITIVE)).map(|record| [record]) {
        assert_eq!(from_json(&to_json(&record).unwrap()).unwrap(), record);
        assert_eq!(from_cbor(&to_cbor(&record).unwrap()).unwrap(), record);
    }
    for record in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().flat_map(of).map(|record| [record]) {
        let mut encoder = Encoder::new(Vec::new());
        write_pack(&mut encoder, &record).unwrap();
        for error in [from_cbor(&encoder.into_writer()).err(), to_cbor(&record).err(), to_json(&record).err()] {
            assert!(error.unwrap().to_string().contains("record 1: there is a number that is not finite"));
        }
    }
    // 10^400 as a decimal fraction and in JSON.
    assert!(from_cbor(&[0x81, 0xa2, 0x00, 0x61, b'a', 0x02, 0xc4, 0x82, 0x19, 0x01, 0x90, 0x01]).is_err());
    assert!(from_json(br#"[{"n":"a","v":1e400}]"#).is_err());
}

/// The exponent of JSON numbers is written with a lower-case e (RFC 8428, section 5).
#[test]
fn an_exponent_has_a_small_e() {
    let pack = [Record { n: Some("a".to_owned()), v: Some(1.5e300), ..Record::default() }];
    let written = String::from_utf8(to_json(&pack).unwrap()).unwrap();
    assert!(written.contains("1.5e") && !written.contains('E'), "{written}");
}

#[test]
fn a_field_that_occurs_twice_is_refused() {
    let fields: [(&[u8], &str); 5] = [
        (&[0x00, 0x61, b'a'], r#""n":"a""#),
        (&[0x02, 0x01], r#""v":1"#),
        (&[0x06, 0x01], r#""t":1"#),
        (&[0x22, 0x01], r#""bt":1"#),
        // An unknown field.
        (&[0x18, 0x40, 0x01], r#""x":1"#),
    ];
    for (cbor, json) in fields {
        let in_cbor = |count: u8, fields: &[&[u8]]| {
            from_cbor(&[&[0x81, 0xa0 | count, 0x21, 0x61, b'b', 0x18, 0x50, 0x01][..], &fields.concat()].concat())
        };
        assert!(in_cbor(3, &[cbor]).is_ok(), "{json}");
        assert!(in_cbor(4, &[cbor, cbor]).unwrap_err().to_string().contains("twice"), "{json}");
        let in_json = |fields: &str| from_json(format!(r#"[{{"bn":"b","y":1,{fields}}}]"#).as_bytes());
        assert!(in_json(json).is_ok(), "{json}");
        assert!(in_json(&format!("{json},{json}")).unwrap_err().to_string().contains("twice"), "{json}");
    }
}

/// A pack is one CBOR array of definite length (RFC 8428, section 6).
#[test]
fn a_pack_in_cbor_ends_with_its_array() {
    let pack = to_cbor(&from_json(br#"[{"n":"a","v":1},{"n":"b","v":2}]"#).unwrap()).unwrap();
    assert_eq!(pack.first(), Some(&0x82));
    for more in [0x00, 0x80, 0xff] {
        assert!(from_cbor(&[&pack[..], &[more]].concat()).is_err());
    }
}

/// RFC 8949, sections 3 and 3.3.
#[test]
fn a_value_of_an_unknown_label_is_well_formed() {
    let read = |value: &[u8]| from_cbor(&[&[0x81, 0xa3, 0x00, 0x61, b'a', 0x02, 0x01, 0x18, 0x40], value].concat());
    for value in [&[0xf8, 0x20][..], &[0x9f, 0xff], &[0xf6]] {
        assert!(read(value).is_ok(), "{value:02x?}");
    }
    for value in [&[0xff][..], &[0xf8, 0x1f], &[0x81, 0xff]] {
        assert!(read(value).is_err(), "{value:02x?}");
    }
}

/// A time below 2^28 is relative to the current time (RFC 8428, section 4.5.3). A resolved record has no such time
/// (section 4.6).
#[test]
fn resolved_records_have_no_relative_times() {
    let times = |pack: &str| -> Vec<_> { resolve(&unchecked(pack).0, NOW).iter().map(|record| record.t).collect() };
    assert_eq!(
        times(r#"[{"n":"a","t":-5,"v":1},{"n":"a","t":0,"v":1},{"n":"a","v":1}]"#),
        [Some(NOW - 5.0), Some(NOW), None]
    );
    assert_eq!(times(r#"[{"bt":10,"n":"a","t":-15,"v":1},{"n":"a","v":1}]"#), [Some(NOW - 5.0), Some(NOW + 10.0)]);
    assert_eq!(
        times(r#"[{"n":"a","t":268435456,"v":1},{"n":"a","t":268435455,"v":1}]"#),
        [Some(268_435_456.0), Some(NOW + 268_435_455.0)]
    );
    // The sum of the base time and the time determines whether the time is relative.
    assert_eq!(times(r#"[{"bt":1.6e9,"n":"a","t":-5,"v":1}]"#), [Some(1.6e9 - 5.0)]);
    assert_eq!(table(&unchecked(r#"[{"n":"a","t":-5,"v":1}]"#).0, NOW), "a  1   1699999995");
}

#[test]
fn a_negative_zero_stays_one_in_cbor() {
    let pack = [Record { n: Some("a".to_owned()), v: Some(-0.0), ..Record::default() }];
    assert!(from_cbor(&to_cbor(&pack).unwrap()).unwrap()[0].v.unwrap().is_sign_negative());
}

fn any_number() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![-1e6..1e6f64, (-1000i32..1000).prop_map(f64::from)]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let number = proptest::option::of(any_number());
    let (base, name) =
        (proptest::option::of("[a-z:/]{0,8}".prop_map(|base| "a".to_owned() + &base)), "[a-z][a-z:/]{0,8}");
    let value = prop_oneof![
        any_number().prop_map(|v| Record { v: Some(v), ..Record::default() }),
        any_number().prop_map(|s| Record { s: Some(s), ..Record::default() }),
        ".{0,8}".prop_map(|vs| Record { vs: Some(vs), ..Record::default() }),
        any::<bool>().prop_map(|vb| Record { vb: Some(vb), ..Record::default() }),
        proptest::collection::vec(any::<u8>(), 0..8)
            .prop_map(|vd| Record { vd: Some(to_base64url(&vd)), ..Record::default() }),
    ];
    let record = (base, number.clone(), name, value, number).prop_map(|(bn, bt, n, value, t)| Record {
        bn,
        bt,
        n: Some(n),
        t,
        ..value
    });
    proptest::collection::vec(record, 0..5)
}

proptest! {
    #[test]
    fn json_and_cbor_carry_the_same_pack(records in records()) {
        prop_assert_eq!(&from_json(&to_json(&records).unwrap()).unwrap(), &records);
        prop_assert_eq!(&from_cbor(&to_cbor(&records).unwrap()).unwrap(), &records);
    }

    #[test]
    fn any_bytes_are_a_pack_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (from_json(&bytes), from_cbor(&bytes));
    }
}
