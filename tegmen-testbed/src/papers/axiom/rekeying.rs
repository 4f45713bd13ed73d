//! Compares two methods of rekeying: a key tree, and a separate message for each member. Also measures the cost of lost
//! messages.

use super::controller::{Eviction, Rekeying, Repair};
use super::unicast::Unicast;
use crate::figure::{Figure, Source, all_of};

pub(super) fn figures(rekeying: &Rekeying, unicast: &Unicast) -> Vec<Figure> {
    let mut figures: Vec<Figure> = rekeying.evictions.iter().flat_map(eviction).collect();
    figures.extend(rekeying.repairs.iter().flat_map(|repair| repairs(repair, unicast)));
    figures.extend(unicast.figures());
    figures
}

/// Returns the figures of an eviction: its keys, frames, bytes and time.
fn eviction(eviction: &Eviction) -> Vec<Figure> {
    let Eviction { members, key_tree, point_to_point } = eviction;
    let id = |what: &str| format!("rekeying/{members}_members/{what}");
    let shown = |what: &str, ours: usize, unit, why| Figure::shown(id(what), None, ours as f64, unit, why);
    // There is one message for each key, and a last message that begins the epoch.
    let keys = key_tree.messages.len().saturating_sub(1) as f64;
    let longest = key_tree.messages.iter().map(Vec::len).max().unwrap_or(0);
    let one_frame = key_tree.frames() == key_tree.messages.len();
    let tree = "one message for each key, and one of the epoch";
    let alone = "one message for each member, and one of the epoch";
    let mut figures = vec![
        Figure::at_most(id("key_tree/keys"), None, keys, 2.0 * f64::from(*members).log2(), "keys", ""),
        shown("key_tree/messages", key_tree.messages.len(), "messages", tree),
        shown("key_tree/bytes", key_tree.bytes(), "bytes", tree),
        shown("key_tree/longest_message", longest, "bytes", tree),
        Figure::holds(id("key_tree/a_message_is_a_frame"), one_frame, "each message to all has one frame in a star"),
        Figure::at_most(id("key_tree/time"), None, key_tree.milliseconds, 20.0, "ms", SLOW).of(Source::Measured),
        shown("point_to_point/messages", point_to_point.messages.len(), "messages", alone),
        shown("point_to_point/bytes", point_to_point.bytes(), "bytes", alone),
    ];
    let (time, milliseconds) = (id("point_to_point/time"), point_to_point.milliseconds);
    let time = match members {
        100 => Figure::at_most(time, None, milliseconds, 30.0, "ms", SLOW),
        _ => Figure::shown(time, None, milliseconds, "ms", "it grows with the group"),
    };
    figures.push(time.of(Source::Measured));
    figures
}

/// Returns the figures for lost rekey messages. A member that did not reach the next epoch requests the missed messages
/// from the controller.
fn repairs(repair: &Repair, unicast: &Unicast) -> Vec<Figure> {
    let Repair { loss, members, messages, ref missed, missed_point_to_point } = *repair;
    let id = |what: String| format!("rekeying/{}_members/{loss}_percent_lost/{what}", members + 1);
    let percent = |count: u32| 100.0 * f64::from(count) / f64::from(members);
    let [asks, opens_and_asks, alone] = [&unicast.repair, &unicast.repair_in_new_session, &unicast.message]
        .map(|cases| cases.get(&loss).map_or(f64::NAN, |flow| flow.frames.mean));
    let mut figures = Vec::new();
    for (times, missed) in missed {
        let sent = f64::from(u32::from(*times) * messages);
        let name = |what: &str| id(format!("key_tree/sent_{times}_times/{what}"));
        let why = "a member needs two of the messages, which nobody acknowledges";
        figures.push(Figure::shown(name("members_that_ask"), None, percent(*missed), "percent", why));
        let why = "the messages, and the exchanges of the members that ask, each in a session that is open";
        figures.push(Figure::shown(name("frames"), None, sent + f64::from(*missed) * asks, "frames", why));
        let why = "each member that asks opens a session before";
        let frames = sent + f64::from(*missed) * opens_and_asks;
        figures.push(Figure::shown(name("frames_with_new_sessions"), None, frames, "frames", why));
    }
    let name = |what: &str| id(format!("point_to_point/{what}"));
    let why = "the MAC sends a message to one member again, and nobody acknowledges that of the epoch";
    figures.push(Figure::shown(name("members_that_ask"), None, percent(missed_point_to_point), "percent", why));
    let sent = f64::from(members) * alone + 1.0;
    let why = "a message for each member, that of the epoch, and the exchanges of the members that ask";
    let asking = f64::from(missed_point_to_point);
    figures.push(Figure::shown(name("frames"), None, sent + asking * asks, "frames", why));
    let frames = sent + asking * opens_and_asks;
    let why = "each member that asks opens a session before";
    figures.push(Figure::shown(name("frames_with_new_sessions"), None, frames, "frames", why));
    all_of(Source::Simulated, figures).collect()
}

const SLOW: &str = "this machine is slower, or was busy: run the command alone";
