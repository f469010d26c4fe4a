//! A link to the registry that is as long as one to another data centre: each byte arrives later, none is held back.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::clock;

/// Bytes that are read at one time.
const CHUNK_BYTES: usize = 64 * 1024;

pub(crate) struct SlowLink {
    port: u16,
    _runtime: tokio::runtime::Runtime,
}

impl SlowLink {
    /// Leads to that port of this host; a round trip takes so much longer.
    pub(crate) fn to(port: u16, round_trip: Duration) -> anyhow::Result<SlowLink> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let own = listener.local_addr()?.port();
        runtime.spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).await else { return };
                    let _ = near.set_nodelay(true).and(far.set_nodelay(true));
                    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                    tokio::join!(carry(near_in, far_out, round_trip / 2), carry(far_in, near_out, round_trip / 2));
                });
            }
        });
        Ok(SlowLink { port: own, _runtime: runtime })
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// One way. What is on its way when the near end closes still arrives.
async fn carry(mut input: OwnedReadHalf, mut output: OwnedWriteHalf, delay: Duration) {
    let (sender, mut on_the_way) = mpsc::unbounded_channel();
    let reading = async move {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            match input.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(length) => chunk.truncate(length),
            }
            if sender.send((clock::instant() + delay, chunk)).is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((arrival, chunk)) = on_the_way.recv().await {
            clock::sleep_until(arrival).await;
            if output.write_all(&chunk).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}
