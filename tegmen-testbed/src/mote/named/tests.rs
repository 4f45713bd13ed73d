use super::*;
use crate::cost::Costs;
use crate::mote::Protection;
use tegmen::dtls::Profile;

fn address(node: u8) -> Address {
    Address { ip: [node; 16], port: 0, scope: 0 }
}

fn setup(node: u8, protection: Protection) -> Setup {
    let costs = Costs::of_budget();
    Setup { local: address(node), protection, profile: Profile::Minimal, payload: 0, response: 2, costs }
}

/// A consumer, a forwarder and a producer in a row.
struct Row {
    nodes: Vec<NamedNode>,
    now: Instant,
    /// Packets that are not yet delivered: the sender, the receiver, and the bytes.
    sent: Vec<(u8, u8, Vec<u8>)>,
    reports: Vec<Wish>,
}

impl Row {
    fn new(protection: Protection) -> Self {
        let producers = vec![address(2)];
        let parts = [
            Part::Consumer { place: 0, producers: producers.clone(), proxy: Some(address(1)) },
            Part::Forwarder { towards: producers.clone(), producers, stores: true },
            Part::Producer { place: 0 },
        ];
        let node =
            |(number, part): (usize, &Part)| NamedNode::of_part(7, number, setup(number as u8, protection), part);
        let nodes = parts.iter().enumerate().map(node).collect();
        Self { nodes, now: Instant::from_micros(1), sent: Vec::new(), reports: Vec::new() }
    }

    fn keep(&mut self, from: u8, wishes: Vec<Wish>) {
        for wish in wishes {
            match wish {
                Wish::Send { to, datagram } => self.sent.push((from, to.ip[0], datagram)),
                report => self.reports.push(report),
            }
        }
    }

    fn ask(&mut self) {
        let mut wishes = Vec::new();
        self.nodes[0].read(self.now, address(2), &mut wishes);
        self.keep(0, wishes);
    }

    /// Delivers all packets except those that `is_lost` selects. Returns the packets that were sent.
    fn deliver(&mut self, is_lost: impl Fn(u8, u8, &[u8]) -> bool) -> Vec<(u8, u8, u8)> {
        let mut log = Vec::new();
        while !self.sent.is_empty() {
            for (from, to, mut packet) in std::mem::take(&mut self.sent) {
                log.push((from, to, packet[0]));
                if !is_lost(from, to, &packet) {
                    let mut wishes = Vec::new();
                    self.nodes[usize::from(to)].receive(self.now, address(from), &mut packet, &mut wishes);
                    self.keep(to, wishes);
                }
            }
        }
        log
    }

    /// Lets time pass until the next timer. Returns false if there is none.
    fn wait(&mut self) -> bool {
        let Some(next) = self.nodes.iter().filter_map(NamedNode::next_alarm).min() else { return false };
        self.now = next.max(self.now);
        for node in 0..self.nodes.len() {
            if self.nodes[node].next_alarm().is_some_and(|alarm| alarm <= self.now) {
                let mut wishes = Vec::new();
                self.nodes[node].poll(self.now, &mut wishes);
                self.keep(node as u8, wishes);
            }
        }
        true
    }
}

#[test]
fn a_reading_comes_back_over_a_forwarder() {
    for protection in Protection::NAMED {
        let mut row = Row::new(protection);
        row.ask();
        let log = row.deliver(|_, _, _| false);
        assert_eq!(log, [(0, 1, 5), (1, 2, 5), (2, 1, 6), (1, 0, 6)], "{protection:?}");
        assert!(matches!(row.reports[..], [Wish::Answered { at_once: true, .. }]), "{:?}", row.reports);
        assert!(!row.wait(), "nothing waits any more");
    }
}

#[test]
fn each_node_sends_an_interest_again_on_its_own_hop() {
    let mut row = Row::new(Protection::NdnProtected);
    row.ask();
    // The Data packet is lost on the hop to the consumer, which alone asks again, and is answered by the store.
    row.deliver(|from, to, _| (from, to) == (1, 0));
    assert!(row.reports.is_empty());
    assert!(row.wait());
    assert_eq!(row.deliver(|_, _, _| false), [(0, 1, 5), (1, 0, 6)]);
    assert!(matches!(row.reports[..], [Wish::Answered { at_once: false, .. }]), "{:?}", row.reports);
}

#[test]
fn a_forwarder_repeats_an_interest_without_its_consumer() {
    let mut row = Row::new(Protection::Ndn);
    row.ask();
    row.deliver(|from, to, _| (from, to) == (1, 2));
    // No further Interest of the consumer comes.
    while row.reports.is_empty() && row.wait() {
        row.deliver(|from, _, _| from == 0);
    }
    assert!(matches!(row.reports[..], [Wish::Answered { at_once: false, .. }]), "{:?}", row.reports);
}

#[test]
fn a_consumer_gives_up_after_four_retransmissions() {
    let mut row = Row::new(Protection::Ndn);
    row.ask();
    let mut sent = row.deliver(|_, _, _| true).len();
    while row.wait() {
        sent += row.deliver(|_, _, _| true).len();
    }
    assert_eq!((sent, &row.reports[..]), (5, &[Wish::GivenUp][..]));
    assert_eq!(row.now.since(Instant::from_micros(1)).as_millis() / 100, 99, "ten seconds");
}

#[test]
fn one_packet_answers_all_requests_for_its_name() {
    let mut row = Row::new(Protection::NdnProtected);
    (0..40).for_each(|_| row.ask());
    let log = row.deliver(|_, _, _| false);
    // Of 40 requests for ten readings only the first of each is sent on.
    assert_eq!(row.reports.len(), 40);
    assert!(row.reports.iter().all(|report| matches!(report, Wish::Answered { .. })), "{:?}", row.reports);
    assert!(log.iter().filter(|(from, ..)| *from == 2).count() <= 10, "{log:?}");
}

#[test]
fn a_packet_of_another_producer_is_no_reading() {
    let mut row = Row::new(Protection::NdnProtected);
    // The node beside the forwarder has another key.
    row.nodes[2] = {
        let mut node = NamedNode::of_part(7, 2, setup(2, Protection::NdnProtected), &Part::Producer { place: 1 });
        node.producers.clear();
        node.produces(1, &prefix_of_producer(0));
        node
    };
    row.ask();
    row.deliver(|_, _, _| false);
    assert_eq!(row.reports, [Wish::GivenUp]);
}

#[test]
fn a_producer_gives_no_name_to_two_contents() {
    let mut crypto = Compact::new([1; 32]);
    let mut producer = Producer::new::<Compact>(1, prefix(&[b"t"]), Protection::NdnProtected);
    let third = producer.packet(&mut crypto, 3, b"21").unwrap().to_vec();
    assert_eq!(producer.packet(&mut crypto, 3, b"22").unwrap(), third, "the packet that was made");
    let name = name_of(&prefix(&[b"t"]), 3);
    assert_eq!(ReceivedData::parse(&third).unwrap().data.name.as_bytes(), name);
    let far = producer.packet(&mut crypto, 200, b"21").unwrap().to_vec();
    assert_ne!(ReceivedData::parse(&far).unwrap().data.content, ReceivedData::parse(&third).unwrap().data.content);
    assert_eq!(producer.packet(&mut crypto, 3, b"21"), None, "its packet is no longer kept");
}
