//! One connection as a pure state machine: bytes and times in, bytes and answers out. It owns no socket and reads no clock, so it
//! runs in a simulator, and on bytes that no server would send.
//!
//! ```text
//! start: connect request        -> Joining
//! Joining: connect response     -> identity (if there is one), then Open; refused: Broken
//! Open: requests, pings         answers come in the order of the requests, events between them
//! any:  silence, nonsense, end  -> Broken, permanently
//! ```
//!
//! **Silence.** The session timeout is `T`. A ping goes out when nothing was sent for `T/3`. The connection is broken when a request
//! has waited `2T/3` for its answer: then the session may be over before anybody else notices.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use crate::connect::Session;
use crate::jute::{Malformed, Put, Take};
use crate::record::{Code, WatchEvent, opcode, take_event};

/// An answer longer than this is no answer. A server sends at most what it was asked for, and we ask for little at a time.
const FRAME_MAX: usize = 256 << 20;
/// Marks of frames that no request has.
const XID_EVENT: i32 = -1;
const XID_PING: i32 = -2;
const XID_AUTH: i32 = -4;

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The session that was to be continued is over.
    #[error("the session has expired")]
    Expired,
    /// The server does not accept who we say that we are.
    #[error("the authentication failed")]
    AuthFailed,
    /// The server closed the connection. Before the first answer: it has no quorum, or refuses more connections.
    #[error("the server closed the connection")]
    Closed,
    /// The connection ended while a large request waited for its answer: the server may accept only smaller ones.
    #[error(
        "the connection ended after a request of {bytes} bytes; if this repeats, the servers accept only smaller requests: start them with `-Djute.maxbuffer=1048575`, ZooKeeper's default, or more"
    )]
    AfterLarge {
        /// The size of the request.
        bytes: usize,
    },
    /// Another connection serves the session now.
    #[error("another connection took over the session")]
    Moved,
    /// An answer did not come within two thirds of the session timeout.
    #[error("the server did not answer within {0:?}")]
    Silent(Duration),
    /// The answer is none.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The socket says so.
    #[error("{0}")]
    Socket(String),
    /// This side closed it.
    #[error("the connection was closed")]
    ByUs,
}

/// What a connection began with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// The session, to be continued on another connection.
    pub session: Session,
    /// After how long without contact the server ends it.
    pub timeout: Duration,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The last transaction that the server had executed; of a write the number of its own.
    pub zxid: i64,
    /// Whether it was executed.
    pub code: Code,
    /// What follows; empty for a refusal.
    pub body: Bytes,
}

/// What comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The session is established; requests are accepted.
    Established(Established),
    /// The answer to the request of that ticket.
    Reply(u64, Reply),
    /// A node changed on which there is a watch.
    Event(WatchEvent),
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Until the connect response.
    Joining,
    /// Until the server has accepted who we are.
    Introducing(Established),
    Open,
    Over(Broken),
}

#[derive(Debug)]
struct Waiting {
    xid: i32,
    /// `None` for pings.
    ticket: Option<u64>,
    sent: Duration,
    bytes: usize,
}

/// Smaller requests are accepted by every server.
const LARGE: usize = 50_000;

/// One connection. All times are since any fixed moment.
#[derive(Debug)]
pub struct Protocol {
    state: State,
    identity: Option<Bytes>,
    /// The session timeout: what is asked for, then what the server grants.
    timeout: Duration,
    out: Vec<u8>,
    input: BytesMut,
    waiting: VecDeque<Waiting>,
    next_xid: i32,
    last_sent: Duration,
    /// When the last request was sent that has an answer: the server has heard of us since.
    heard: Duration,
}

impl Protocol {
    /// Begins with the request for a session: `former` is to be continued, without one a new session is opened. `digest` is
    /// `user:password`.
    pub fn new(now: Duration, former: Option<&Session>, timeout: Duration, digest: Option<&str>) -> Protocol {
        let mut protocol = Protocol {
            state: State::Joining,
            identity: digest.map(|digest| Bytes::copy_from_slice(digest.as_bytes())),
            timeout,
            out: Vec::new(),
            input: BytesMut::new(),
            waiting: VecDeque::new(),
            next_xid: 1,
            last_sent: now,
            heard: now,
        };
        let begin = protocol.begin_frame();
        protocol.out.int(0); // the version of the protocol
        // The last transaction that this client has seen is not sent: a server that lags is made to catch up by `sync`, and an ensemble that
        // was rebuilt would refuse this session permanently.
        protocol.out.long(0);
        protocol.out.int(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
        protocol.out.long(former.map_or(0, |session| session.id.cast_signed()));
        protocol.out.buffer(former.map_or(&[0; 16], |session| &session.password));
        protocol.out.flag(false); // a server that only reads is of no use
        protocol.end_frame(begin);
        protocol
    }

    /// Accepts a request: its number (`opcode`) and its body. Its answer has the same `ticket`. No request is accepted before the
    /// connection is established.
    pub fn request(&mut self, now: Duration, ticket: u64, opcode: i32, body: &[u8]) {
        debug_assert_eq!(self.state, State::Open, "requests wait for the connection");
        let xid = self.next_xid;
        // Negative ones have a meaning.
        self.next_xid = xid.checked_add(1).unwrap_or(1);
        self.send(now, xid, Some(ticket), opcode, body);
    }

    /// Takes in what came from the server.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub fn receive(&mut self, now: Duration, bytes: &[u8], incoming: &mut Vec<Incoming>) -> Result<(), Broken> {
        self.alive()?;
        self.input.extend_from_slice(bytes);
        while let Some(frame) = self.frame().map_err(|broken| self.end(broken))? {
            self.take(now, frame, incoming).map_err(|broken| self.end(broken))?;
        }
        Ok(())
    }

    /// Looks whether a ping is due, or an answer overdue.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub fn tick(&mut self, now: Duration) -> Result<(), Broken> {
        self.alive()?;
        if self.waiting.front().is_some_and(|oldest| now >= oldest.sent + self.patience()) {
            return Err(self.end(Broken::Silent(self.patience())));
        }
        if self.state == State::Open && now >= self.last_sent + self.timeout / 3 {
            self.send(now, XID_PING, None, opcode::PING, &[]);
        }
        Ok(())
    }

    /// When [`Protocol::tick`] is to be called at the latest; `None` before the connection is established.
    pub fn wake_at(&self) -> Option<Duration> {
        let ping = (self.state == State::Open).then(|| self.last_sent + self.timeout / 3);
        let answer = self.waiting.front().map(|oldest| oldest.sent + self.patience());
        ping.into_iter().chain(answer).min()
    }

    /// Until when the session is certain to live, as far as the answers of the server tell.
    pub fn lives_until(&self) -> Duration {
        self.heard + self.timeout
    }

    /// The bytes to send. The caller that sends them removes them.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// The requests without an answer: whether they were executed is unknown.
    pub fn unanswered(&self) -> impl Iterator<Item = u64> + '_ {
        self.waiting.iter().filter_map(|waiting| waiting.ticket)
    }

    /// How many requests have no answer yet.
    pub fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    /// How long an answer may take: beyond that the session may be over.
    pub fn patience(&self) -> Duration {
        self.timeout * 2 / 3
    }

    /// Ends it, as the socket broke or this side wants no more. The first reason counts, and is returned.
    pub fn end(&mut self, reason: Broken) -> Broken {
        if !matches!(self.state, State::Over(_)) {
            let largest = self.waiting.iter().map(|waiting| waiting.bytes).max().unwrap_or_default();
            let reason = match reason {
                Broken::Closed | Broken::Socket(_) if largest >= LARGE => Broken::AfterLarge { bytes: largest },
                reason => reason,
            };
            self.state = State::Over(reason);
            self.out.clear();
            self.input.clear();
        }
        match &self.state {
            State::Over(reason) => reason.clone(),
            State::Joining | State::Introducing(_) | State::Open => Broken::ByUs,
        }
    }

    fn alive(&self) -> Result<(), Broken> {
        match &self.state {
            State::Over(reason) => Err(reason.clone()),
            State::Joining | State::Introducing(_) | State::Open => Ok(()),
        }
    }

    fn send(&mut self, now: Duration, xid: i32, ticket: Option<u64>, opcode: i32, body: &[u8]) {
        let begin = self.begin_frame();
        self.out.int(xid);
        self.out.int(opcode);
        self.out.extend_from_slice(body);
        self.end_frame(begin);
        self.waiting.push_back(Waiting { xid, ticket, sent: now, bytes: self.out.len() - begin });
        self.last_sent = now;
    }

    fn begin_frame(&mut self) -> usize {
        self.out.int(0);
        self.out.len()
    }

    fn end_frame(&mut self, begin: usize) {
        let length = i32::try_from(self.out.len() - begin).unwrap_or(i32::MAX);
        self.out[begin - 4..begin].copy_from_slice(&length.to_be_bytes());
    }

    /// The next whole frame.
    fn frame(&mut self) -> Result<Option<Bytes>, Broken> {
        let Some(length) = self.input.first_chunk::<4>() else { return Ok(None) };
        let length =
            usize::try_from(i32::from_be_bytes(*length)).map_err(|_| Malformed("a frame of negative length"))?;
        if length > FRAME_MAX {
            return Err(Malformed("a frame that is too long; is this a ZooKeeper server?").into());
        }
        if self.input.len() - 4 < length {
            return Ok(None);
        }
        self.input.advance(4);
        Ok(Some(self.input.split_to(length).freeze()))
    }

    fn take(&mut self, now: Duration, mut frame: Bytes, incoming: &mut Vec<Incoming>) -> Result<(), Broken> {
        if self.state == State::Joining {
            return self.joined(now, frame, incoming);
        }
        let (xid, zxid, code) = (frame.int()?, frame.long()?, Code(frame.int()?));
        match xid {
            XID_EVENT => {
                incoming.extend(take_event(&mut frame)?.map(Incoming::Event));
                return Ok(());
            }
            XID_AUTH if code != Code::OK => return Err(Broken::AuthFailed),
            _ => {}
        }
        let Some(&Waiting { ticket, sent, .. }) = self.waiting.front().filter(|waiting| waiting.xid == xid) else {
            return Err(Malformed("a reply without a matching request").into());
        };
        match code {
            Code::SESSION_EXPIRED => return Err(Broken::Expired),
            Code::SESSION_MOVED => return Err(Broken::Moved),
            // It may have waited in the socket while this process stood still.
            _ if now >= sent + self.patience() => return Err(Broken::Silent(self.patience())),
            _ => self.waiting.pop_front(),
        };
        self.heard = sent;
        if let Some(ticket) = ticket {
            let body = if code == Code::OK { frame } else { Bytes::new() };
            incoming.push(Incoming::Reply(ticket, Reply { zxid, code, body }));
        }
        if xid == XID_AUTH
            && let State::Introducing(established) = std::mem::replace(&mut self.state, State::Open)
        {
            incoming.push(Incoming::Established(established));
        }
        Ok(())
    }

    fn joined(&mut self, now: Duration, mut frame: Bytes, incoming: &mut Vec<Incoming>) -> Result<(), Broken> {
        let (version, timeout, id, password) = (frame.int()?, frame.int()?, frame.long()?, frame.buffer()?);
        if version != 0 {
            return Err(Malformed("unsupported protocol version; is this a ZooKeeper server?").into());
        }
        if timeout <= 0 || id == 0 {
            return Err(Broken::Expired);
        }
        self.timeout = Duration::from_millis(u64::from(timeout.unsigned_abs()));
        let password = <[u8; 16]>::try_from(&*password).map_err(|_| Malformed("a session without its password"))?;
        let session = Session { id: id.cast_unsigned(), password };
        let established = Established { session, timeout: self.timeout };
        match self.identity.take() {
            None => {
                self.state = State::Open;
                incoming.push(Incoming::Established(established));
            }
            // Sent after the connect response: some servers answer it first when both come in one packet.
            Some(digest) => {
                let mut body = Vec::new();
                body.int(0);
                body.text("digest");
                body.buffer(&digest);
                self.state = State::Introducing(established);
                self.send(now, XID_AUTH, None, opcode::AUTH, &body);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(3);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.buffer(body);
        frame
    }

    fn response(timeout: i32, id: i64) -> Vec<u8> {
        let mut body = Vec::new();
        body.int(0);
        body.int(timeout);
        body.long(id);
        body.buffer(&[7; 16]);
        body.flag(false);
        framed(&body)
    }

    fn answer(xid: i32, zxid: i64, code: i32, rest: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.int(xid);
        body.long(zxid);
        body.int(code);
        body.extend_from_slice(rest);
        framed(&body)
    }

    fn receive(protocol: &mut Protocol, now: Duration, bytes: &[u8]) -> Result<Vec<Incoming>, Broken> {
        let mut incoming = Vec::new();
        protocol.receive(now, bytes, &mut incoming).map(|()| incoming)
    }

    fn open() -> Protocol {
        let mut protocol = Protocol::new(at(0), None, T, None);
        let incoming = receive(&mut protocol, at(1), &response(3_000, 5)).expect("a session");
        let session = Session { id: 5, password: [7; 16] };
        assert_eq!(incoming, [Incoming::Established(Established { session, timeout: T })]);
        protocol.out().clear();
        protocol
    }

    #[test]
    fn frames_may_come_in_any_pieces() {
        let answers = [answer(1, 8, 0, b"one"), answer(2, 9, -101, b"")].concat();
        for size in 1..=answers.len() {
            let mut protocol = Protocol::new(at(0), None, T, None);
            let mut incoming = Vec::new();
            for piece in response(3_000, 5).chunks(size) {
                protocol.receive(at(1), piece, &mut incoming).expect("a session");
            }
            assert!(matches!(incoming[..], [Incoming::Established(_)]), "pieces of {size}");
            incoming.clear();
            protocol.request(at(2), 70, opcode::SYNC, b"");
            protocol.request(at(2), 71, opcode::SYNC, b"");
            for piece in answers.chunks(size) {
                protocol.receive(at(3), piece, &mut incoming).expect("answers");
            }
            let first = Reply { zxid: 8, code: Code::OK, body: Bytes::from_static(b"one") };
            let second = Reply { zxid: 9, code: Code::NO_NODE, body: Bytes::new() };
            assert_eq!(incoming, [Incoming::Reply(70, first), Incoming::Reply(71, second)], "pieces of {size}");
            assert_eq!(protocol.in_flight(), 0);
        }
    }

    #[test]
    fn it_pings_when_nothing_was_sent_and_breaks_when_nothing_is_answered() {
        let mut protocol = open();
        assert_eq!(protocol.wake_at(), Some(at(1_000)));
        protocol.tick(at(999)).expect("lives");
        assert!(protocol.out().is_empty());
        protocol.tick(at(1_000)).expect("lives");
        assert_eq!(protocol.out().split_off(0), framed(&[XID_PING.to_be_bytes(), opcode::PING.to_be_bytes()].concat()));
        assert_eq!(receive(&mut protocol, at(1_010), &answer(XID_PING, 0, 0, b"")), Ok(vec![]));
        protocol.request(at(1_500), 1, opcode::SYNC, b"");
        protocol.tick(at(3_499)).expect("lives");
        assert_eq!(protocol.tick(at(3_500)), Err(Broken::Silent(at(2_000))));
        assert_eq!(protocol.unanswered().collect::<Vec<_>>(), [1]);
        assert_eq!(receive(&mut protocol, at(3_501), b""), Err(Broken::Silent(at(2_000))), "for good");
    }

    /// A process that stood still finds an answer in its socket.
    #[test]
    fn an_answer_that_comes_too_late_does_not_count() {
        let mut protocol = open();
        protocol.request(at(10), 1, opcode::SYNC, b"");
        assert_eq!(receive(&mut protocol, at(2_010), &answer(1, 9, 0, b"")), Err(Broken::Silent(at(2_000))));
        assert_eq!(protocol.unanswered().collect::<Vec<_>>(), [1], "it is not known whether it was executed");
    }

    /// A server whose limit is lower closes the connection without a word.
    #[test]
    fn an_end_after_a_large_request_says_what_to_check() {
        for (bytes, is_large) in [(49_000, false), (60_000, true)] {
            for end in [Broken::Closed, Broken::Socket("reset".into())] {
                let mut protocol = open();
                protocol.request(at(10), 1, opcode::SYNC, &vec![0; bytes]);
                protocol.request(at(11), 2, opcode::SYNC, b"");
                let broken = protocol.end(end.clone());
                match is_large {
                    true => assert_eq!(broken, Broken::AfterLarge { bytes: bytes + 8 }),
                    false => assert_eq!(broken, end),
                }
            }
            let mut protocol = open();
            protocol.request(at(10), 1, opcode::SYNC, &vec![0; bytes]);
            receive(&mut protocol, at(11), &answer(1, 9, 0, b"")).expect("an answer");
            assert_eq!(protocol.end(Broken::Closed), Broken::Closed, "it was answered");
        }
    }

    #[test]
    fn an_expired_session_is_reported() {
        let mut protocol = Protocol::new(at(0), Some(&Session { id: 5, password: [7; 16] }), T, None);
        assert_eq!(receive(&mut protocol, at(1), &response(0, 0)), Err(Broken::Expired));
        let mut protocol = open();
        protocol.request(at(10), 1, opcode::SYNC, b"");
        assert_eq!(receive(&mut protocol, at(11), &answer(1, 0, -112, b"")), Err(Broken::Expired));
    }

    #[test]
    fn who_we_are_is_said_behind_the_response_and_before_anything_else() {
        let mut protocol = Protocol::new(at(0), None, T, Some("a:b"));
        protocol.out().clear();
        assert_eq!(receive(&mut protocol, at(1), &response(3_000, 5)), Ok(vec![]));
        assert!(protocol.out().ends_with(b"\0\0\0\x06digest\0\0\0\x03a:b"), "{:?}", protocol.out());
        let incoming = receive(&mut protocol, at(2), &answer(XID_AUTH, 0, 0, b"")).expect("accepted");
        assert!(matches!(incoming[..], [Incoming::Established(_)]));
        let mut protocol = Protocol::new(at(0), None, T, Some("a:b"));
        receive(&mut protocol, at(1), &response(3_000, 5)).expect("a session");
        assert_eq!(receive(&mut protocol, at(2), &answer(XID_AUTH, 0, -115, b"")), Err(Broken::AuthFailed));
    }

    #[test]
    fn nonsense_ends_the_connection() {
        let nonsense: [Vec<u8>; 5] = [
            vec![0xff; 8],
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            answer(9, 0, 0, b""),
            answer(XID_PING, 0, 0, b""),
            framed(b"\0"),
        ];
        for bytes in nonsense {
            let mut protocol = open();
            let broken = receive(&mut protocol, at(5), &bytes).expect_err("no answer");
            assert!(matches!(broken, Broken::Malformed(_)), "{broken:?}");
            assert!(protocol.out().is_empty());
        }
    }
}
