use super::*;
use std::string::ToString as _;

#[test]
fn alerts_of_other_implementations_have_their_names() {
    for (number, name) in [
        (41, "no_certificate"),
        (60, "export_restriction"),
        (86, "inappropriate_fallback"),
        (112, "unrecognized_name"),
        (116, "certificate_required"),
        (120, "no_application_protocol"),
    ] {
        let alert = AlertDescription(number);
        assert_eq!((alert.name(), alert.to_string().as_str()), (name, name));
    }
}

#[test]
fn an_alert_without_a_name_is_displayed_with_its_number() {
    assert_eq!(AlertDescription(199).to_string(), "alert 199, which has no name");
}
