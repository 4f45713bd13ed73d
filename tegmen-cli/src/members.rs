//! Describes the groups of a controller, and their members, as text.

use crate::admin::segment;
use crate::output::printable;
use serde_json::Value;

/// Returns the path of a group in the HTTPS interface.
pub(crate) fn path(name: &str) -> String {
    format!("/v1/groups/{}", segment(name))
}

/// Describes a group in several lines: its settings, then one line for each member and each controller, then one line
/// for each shortage, such as few epochs left.
pub(crate) fn describe(group: &Value) -> String {
    let (name, config) = (group["name"].as_str().unwrap_or_default(), &group["config"]);
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    let signatures = match text("signature") {
        "" | "none" => String::new(),
        kind => format!(" signatures {kind}"),
    };
    let mut lines = vec![
        format!(
            "{name}: epoch {}, {} more epochs, the last {} for evictions only",
            group["epoch"], group["epochs_left"], group["epochs_reserved"]
        ),
        match group["gid"].as_str() {
            Some(gid) => format!(
                "  {} Group OSCORE {}{signatures} Group Identifier {gid}, {} of {} members",
                text("address"),
                text("suite"),
                group["size"],
                config["space"]
            ),
            None => format!(
                "  {} {}{signatures} GroupID {}, {} of {} members, {} of {} SenderIDs",
                text("address"),
                text("suite"),
                config["group_id"],
                group["size"],
                config["space"],
                group["sender_ids"],
                config["senders"]
            ),
        },
    ];
    let entries = |field: &str| group[field].as_array().into_iter().flatten();
    lines.extend(entries("members").map(|member| format!("  {}", describe_member(member))));
    lines.extend(entries("controllers").map(|controller| {
        format!(
            "  {}: controller, SenderID {}",
            controller["name"].as_str().unwrap_or_default(),
            controller["sender_id"]
        )
    }));
    lines.extend(entries("lacks").filter_map(Value::as_str).map(warning));
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}

/// Describes a group in a list in one line, with its warning.
pub(crate) fn describe_listed(group: &Value) -> String {
    let name = group["name"].as_str().unwrap_or_default();
    let first = match group["epoch"].as_u64() {
        Some(epoch) => format!("{name}: epoch {epoch}, {} more epochs", group["epochs_left"]),
        None => name.to_owned(),
    };
    let lines = std::iter::once(first).chain(group["warning"].as_str().map(warning));
    lines.map(|line| printable(&line)).collect::<Vec<_>>().join("\n")
}

/// Returns a line with a warning about a group.
pub(crate) fn warning(text: &str) -> String {
    format!("  warning: {text}")
}

/// Describes a member in one line.
pub(crate) fn describe_member(member: &Value) -> String {
    let address = member["address"].as_str().map_or_else(String::new, |address| format!(" at {address},"));
    let sends = member["sender_id"].as_u64().map_or_else(String::new, |id| format!(" SenderID {id},"));
    let alone = if member["checks_signatures"] == false { " checks no signatures," } else { "" };
    let name = member["name"].as_str().unwrap_or_default();
    if let Some(roles) = member["oscore"]["roles"].as_array() {
        let roles: Vec<&str> = roles.iter().filter_map(Value::as_str).collect();
        let id = member["oscore"]["id"].as_str().map_or_else(String::new, |id| format!(" Sender ID {id},"));
        return format!(
            "{name}: {},{id} node {}, since epoch {}",
            roles.join(" and "),
            member["leaf"],
            member["since"]
        );
    }
    format!("{name}:{address}{sends}{alone} leaf {}, since epoch {}", member["leaf"], member["since"])
}
