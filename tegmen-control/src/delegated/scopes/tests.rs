use super::*;

fn scopes(texts: &[&str]) -> Result<Scopes, String> {
    Scopes::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
}

#[test]
fn a_scope_allows_its_rules_and_another_index_allows_nothing() {
    let scopes = scopes(&["GET /temp, PUT /light", "read /sensors/*"]).unwrap();
    let allows = |index, code, path: &str| scopes.allows(index, code, path.bytes());
    assert!(allows(0, Code::GET, "/temp") && allows(0, Code::PUT, "/light") && allows(1, Code::GET, "/sensors/1"));
    assert!(
        !allows(0, Code::PUT, "/temp") && !allows(0, Code::GET, "/sensors/1") && !allows(1, Code::PUT, "/sensors/1")
    );
    assert!(!allows(2, Code::GET, "/temp") && !allows(u8::MAX, Code::GET, "/temp"));
    assert!(!Scopes::default().allows(0, Code::GET, "/temp".bytes()));
}

#[test]
fn a_text_that_is_no_scope_is_named() {
    assert!(scopes(&["GET /temp", "PUT light"]).unwrap_err().starts_with("PUT light is no rule: a rule is a method"));
    assert!(scopes(&["GET /temp,"]).unwrap_err().contains("is no rule"));
    assert!(scopes(&[""]).is_err());
    assert_eq!(scopes(&["GET /"; 255]).unwrap().count(), 255);
    assert!(scopes(&["GET /"; 256]).unwrap_err().contains("at most 255 scopes"));
}
