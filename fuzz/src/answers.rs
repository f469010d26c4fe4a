//! What a ZooKeeper server may send, whole and broken, to a connection that has asked for something.

use std::time::Duration;

use elasticjob_sim::Chance;
use elasticjob_zookeeper::{Broken, Incoming, Protocol, decode_multi, decode_reads};

use crate::mutate::index;

/// A server's frames, now and then with bytes that are changed, missing or too many.
pub(crate) fn bytes(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = frame(&[&int(0), &int(4_000), &long(7), &int(16), &[9; 16], &[0]]);
    for xid in 1..6 {
        bytes.extend(match chance.below(5) {
            0 => frame(&[&int(-1), &long(-1), &int(0), &int(3), &int(3), &buffer(b"/a/b")]),
            1 => reply(chance, xid, &[int(-101).to_vec(), header(4), buffer(b"data"), vec![1; 68], end()].concat()),
            2 => reply(chance, xid, &[header(8), int(2).to_vec(), buffer(b"a"), buffer(b"b"), end()].concat()),
            3 => reply(chance, xid, &[header(-1), int(-110).to_vec(), header(5), vec![0; 68], end()].concat()),
            _ => reply(chance, xid, &buffer(b"/a/latch-0000000001")),
        });
    }
    for _ in 0..chance.below(4) {
        let at = index(chance, bytes.len());
        match chance.below(4) {
            0 => bytes[at] = u8::try_from(chance.below(256)).unwrap_or_default(),
            1 => bytes.truncate(at.max(1)),
            2 => bytes.insert(at, 0xff),
            _ => drop(bytes.remove(at)),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

/// Feeds them in pieces. A broken reader stays broken, sends nothing more, and reports for each request whether it has an answer.
pub(crate) fn read(chance: &mut Chance, bytes: &[u8]) {
    let at = |millis| Duration::from_millis(millis);
    let mut protocol = Protocol::new(at(0), None, at(6_000), None);
    let (mut asked, mut answered, mut incoming) = (0_usize, 0, Vec::new());
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, next) = rest.split_at((index(chance, rest.len()) + 1).min(rest.len()));
        rest = next;
        let received = protocol.receive(at(10), piece, &mut incoming);
        for what in incoming.drain(..) {
            match what {
                Incoming::Established(_) if received.is_err() => {}
                Incoming::Established(_) => {
                    for ticket in 0..5 {
                        protocol.request(at(5), ticket, 14, b"");
                        asked += 1;
                    }
                }
                Incoming::Reply(_, reply) => {
                    answered += 1;
                    let _ = (decode_multi(reply.body.clone(), 2), decode_reads(reply.body, 2));
                }
                Incoming::Event(event) => drop(event),
            }
        }
        if let Err(broken) = received {
            assert_eq!(protocol.receive(at(11), b"\0\0\0\0", &mut incoming), Err(broken.clone()));
            assert_eq!(protocol.tick(at(12)), Err(broken));
            assert!(protocol.out().is_empty(), "nothing is sent any more");
            break;
        }
    }
    assert_eq!(asked, answered + protocol.unanswered().count(), "each request has an answer, or none");
    assert_ne!(protocol.end(Broken::Closed), Broken::ByUs);
}

fn int(value: i32) -> [u8; 4] {
    value.to_be_bytes()
}

fn long(value: i64) -> [u8; 8] {
    value.to_be_bytes()
}

fn buffer(value: &[u8]) -> Vec<u8> {
    [&int(i32::try_from(value.len()).unwrap_or_default()), value].concat()
}

fn header(opcode: i32) -> Vec<u8> {
    [&int(opcode)[..], &[0], &int(0)].concat()
}

fn end() -> Vec<u8> {
    [&int(-1)[..], &[1], &int(-1)].concat()
}

fn frame(parts: &[&[u8]]) -> Vec<u8> {
    buffer(&parts.concat())
}

fn reply(chance: &mut Chance, xid: i32, body: &[u8]) -> Vec<u8> {
    let code = if chance.below(4) == 0 { -101 } else { 0 };
    frame(&[&int(xid), &long(77), &int(code), body])
}
