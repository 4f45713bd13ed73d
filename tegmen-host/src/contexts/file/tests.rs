use super::*;

const TEXT: &str = "sender_id = \"01\"\nrecipient_id = \"\"\nmaster_secret = \"000102030405060708090a0b0c0d0e0f\"\n";

fn parse(text: &str) -> Result<ContextFile, ContextError> {
    ContextFile::parse(&Source::of("c", text))
}

#[test]
fn a_file_comes_back_as_it_was_written() {
    let all = format!(
        "{TEXT}master_salt = \"9e7c\"\nid_context = \"37cb\"\nalgorithm = \"A128GCM\"\n\
             expires = 2027-12-31T00:00:00Z\nallow = [\"GET /*\"]\nrederivation = true\n"
    );
    let file = parse(&all).unwrap();
    let again = parse(&file.to_text()).unwrap();
    assert_eq!(file.to_text(), again.to_text());
    assert_eq!(again.expires.unwrap().0, 1_830_211_200);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, expected) in [
        ("sender_id = \"0\"\nrecipient_id = \"\"\nmaster_secret = \"00\"\n", "c:3: master_secret: at least 16"),
        ("sender_id = 1\n", "c:1: "),
        (&format!("{TEXT}algorithm = \"AES\"\n"), "c:4: algorithm: one of AES-CCM-16-64-128"),
        (&format!("{TEXT}expires = 2027-12-31T00:00:00\n"), "c:4: expires: a time with its zone"),
        (&format!("{TEXT}allow = [\"EAT /x\"]\n"), "c:4: allow: a method (GET, POST"),
        (&format!("{TEXT}color = 1\n"), "c:4: unknown field"),
        (&TEXT.replace("\"01\"", "\"\""), "c:2: recipient_id: another one"),
        (&TEXT.replace("\"01\"", "\"0102030405060708\""), "c:1: an ID: at most 7 bytes"),
    ] {
        let error = parse(text).err().unwrap().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
