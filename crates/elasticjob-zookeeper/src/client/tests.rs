//! A client against a server that the test plays.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::DuplexStream;

use super::*;

/// The other end: a server that sends the answers of the test.
struct Server {
    stream: DuplexStream,
}

impl Server {
    /// The number and the kind of the next request; `None` when the connection ended.
    async fn next(&mut self) -> Option<(i32, i32)> {
        let length = self.stream.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(length).expect("a length")];
        self.stream.read_exact(&mut frame).await.ok()?;
        let int = |at: usize| i32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"));
        Some((int(0), int(4)))
    }

    async fn answer(&mut self, xid: i32, code: i32, body: &[u8]) {
        let mut frame = Vec::new();
        frame.int(xid);
        frame.long(77);
        frame.int(code);
        frame.extend_from_slice(body);
        let mut framed = Vec::new();
        framed.buffer(&frame);
        self.stream.write_all(&framed).await.expect("it is heard");
    }
}

/// An established connection with a session timeout of 3 s.
fn connected() -> (Client, Server) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let timeout = Duration::from_secs(3);
    let mut protocol = Protocol::new(Duration::ZERO, None, timeout, None);
    let mut response = Vec::new();
    response.int(0);
    response.int(3_000);
    response.long(5);
    response.buffer(&[7; 16]);
    let (mut framed, mut incoming) = (Vec::new(), Vec::new());
    framed.buffer(&response);
    protocol.receive(Duration::ZERO, &framed, &mut incoming).expect("a session");
    protocol.out().clear();
    let Some(Incoming::Established(established)) = incoming.pop() else { panic!("{incoming:?}") };
    (Client::start(near, protocol, clock::since_boot(), established), Server { stream: far })
}

#[tokio::test]
async fn each_of_many_concurrent_requests_gets_its_own_answer() {
    let (client, mut server) = connected();
    let asked: Vec<_> = (0..5 * COMMANDS_AT_ONCE).map(|_| tokio::spawn(client.sync("/"))).collect();
    for number in 0..asked.len() {
        let (xid, opcode) = server.next().await.expect("a request");
        assert_eq!(opcode, opcode::SYNC);
        server.answer(xid, if number % 2 == 0 { 0 } else { -101 }, b"").await;
    }
    let mut done = 0;
    for answer in asked {
        match answer.await.expect("it ends") {
            Ok(()) => done += 1,
            Err(failure) => assert_eq!(failure, Failure::Refused(Code::NO_NODE)),
        }
    }
    assert_eq!(done, 5 * COMMANDS_AT_ONCE / 2);
}

/// What was sent is unknown, what was not is not sent later.
#[tokio::test]
async fn when_a_connection_breaks_nothing_is_left_open_and_nothing_is_sent() {
    let (client, mut server) = connected();
    let sent = tokio::spawn(client.sync("/"));
    server.next().await.expect("a request");
    let mut broken = client.broken();
    drop(server);
    assert_eq!(sent.await.expect("it ends"), Err(Failure::Unknown(Broken::Closed)));
    broken.wait_for(Option::is_some).await.expect("told");
    assert_eq!(client.sync("/").await, Err(Failure::NotSent(Broken::Closed)));
}

#[tokio::test]
async fn a_request_whose_caller_stopped_waiting_is_not_sent() {
    let (client, mut server) = connected();
    client.give_up();
    let late = client.sync("/");
    assert_eq!(late.await, Err(Failure::NotSent(Broken::ByUs)));
    assert_eq!(server.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_breaks_the_connection_after_two_thirds_of_the_time_out() {
    let (client, mut server) = connected();
    let sent = tokio::spawn(client.sync("/"));
    let (_, opcode) = server.next().await.expect("a request");
    assert_eq!(opcode, opcode::SYNC);
    assert!(matches!(sent.await.expect("it ends"), Err(Failure::Unknown(Broken::Silent(_)))));
}

#[tokio::test]
async fn a_watch_ends_with_its_guard_also_if_nothing_waited_for_it() {
    let (client, mut server) = connected();
    let told = Arc::new(AtomicUsize::new(0));
    let sink = || -> Sink {
        let told = Arc::clone(&told);
        Arc::new(move |_: &WatchEvent| {
            told.fetch_add(1, Ordering::Relaxed);
        })
    };
    let waiting = tokio::spawn(client.watch("/a", false, sink()));
    let (xid, opcode) = server.next().await.expect("a request");
    assert_eq!(opcode, opcode::ADD_WATCH);
    server.answer(xid, 0, b"").await;
    let guard = waiting.await.expect("it ends").expect("a watch");
    let otherwise = client.watch("/a", true, sink()).await;
    assert_eq!(otherwise.expect_err("refused"), Failure::WatchedOtherwise("/a".into()));
    let mut event = Vec::new();
    event.int(3);
    event.int(3);
    event.text("/a");
    server.answer(-1, 0, &event).await;
    // The request was sent after the event, so the event has arrived by then.
    let waiting = tokio::spawn(client.sync("/"));
    let (xid, _) = server.next().await.expect("a request");
    server.answer(xid, 0, b"").await;
    waiting.await.expect("it ends").expect("done");
    assert_eq!(told.load(Ordering::Relaxed), 1);
    drop(guard);
    assert_eq!(server.next().await.expect("a request").1, opcode::REMOVE_WATCHES);
    // Nothing waits for this one.
    drop(client.watch("/b", false, sink()));
    let (xid, _) = server.next().await.expect("a request");
    server.answer(xid - 1, 0, b"").await; // of the removal
    server.answer(xid, 0, b"").await;
    assert_eq!(server.next().await.expect("a request").1, opcode::REMOVE_WATCHES);
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_breaks_the_connection() {
    let (client, mut server) = connected();
    let ops = [Write::Delete { path: "/a", version: None }];
    let waiting = tokio::spawn(client.multi(&ops));
    let (xid, _) = server.next().await.expect("a request");
    server.answer(xid, 0, b"nonsense").await;
    assert!(matches!(waiting.await.expect("it ends"), Err(Failure::Unknown(Broken::Malformed(_)))));
    let mut broken = client.broken();
    broken.wait_for(Option::is_some).await.expect("told");
}
