//! Sends an image to all members of a group that Axiom protects (see [`crate::image`]).

use super::group::{ask_members, tell_members};
use super::{AskedMembers, ClientError, Request, Response};
use crate::group::Membership;
use crate::image::{ImageReport, ImageTransfer};
use crate::uri::Uri;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tegmen::coap::{Code, NoResponse, OptionNumber, uint_bytes};

/// Asks the members of a group which parts of an image they have not received. Accepts the reports of the members until
/// `wait` has passed. The members receive the image at the path of `uri`. Passes each report to `transfer` and to
/// `on_report`. If the response of a member is not a report, the member is counted as missing.
///
/// # Errors
/// [`ClientError`], whose text names the next step for the user. A call to which no member responds succeeds.
pub async fn ask_for_image(
    membership: &Membership,
    uri: &Uri,
    transfer: &mut ImageTransfer<'_>,
    wait: Duration,
    mut on_report: impl FnMut(IpAddr, &ImageReport),
) -> Result<AskedMembers, ClientError> {
    let (uri, id) = (named(uri, transfer), transfer.id());
    let longest = [(OptionNumber::BLOCK2, uint(transfer.report_block().value()))];
    let request = Request::to(Code::GET, &uri).options(&longest);
    let mut others = Vec::new();
    let mut asked = ask_members(membership, &request, wait, |from: SocketAddr, response: Response| {
        let report = Some(response).filter(|response| response.code.is_success());
        match report.and_then(|response| ImageReport::read(&response.payload, id).ok()) {
            Some(report) => {
                on_report(from.ip(), &report);
                transfer.note(from.ip(), report);
            }
            None => others.push(from.ip()),
        }
    })
    .await?;
    asked.responded.retain(|member| !others.contains(member));
    asked.missing.extend(others);
    Ok(asked)
}

/// Sends the missing blocks of an image to the group, each once. A block is missing if at least one member has not
/// received it. Waits for `interval` between two blocks. Returns the number of blocks.
///
/// # Errors
/// [`ClientError`], whose text names the next step for the user.
pub async fn send_image(
    membership: &Membership,
    uri: &Uri,
    transfer: &ImageTransfer<'_>,
    interval: Duration,
    mut on_block: impl FnMut(),
) -> Result<usize, ClientError> {
    let uri = named(uri, transfer);
    let blocks = transfer.blocks().map(|(block, bytes)| {
        on_block();
        let nobody_answers = (OptionNumber::NO_RESPONSE, uint(NoResponse::ALL.value()));
        ([(OptionNumber::BLOCK1, uint(block.value())), nobody_answers], bytes)
    });
    tell_members(membership, Code::PUT, interval, blocks, |(options, bytes)| {
        Request::to(Code::PUT, &uri).options(options).payload(bytes)
    })
    .await
}

/// Returns the URI with the query argument that names the image.
fn named(uri: &Uri, transfer: &ImageTransfer<'_>) -> Uri {
    let mut uri = uri.clone();
    uri.query.push(transfer.id().argument());
    uri
}

fn uint(value: u32) -> Vec<u8> {
    uint_bytes(value, &mut [0; 4]).to_vec()
}
