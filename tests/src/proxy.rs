//! A link that can be cut: a port that leads to another one.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A link to a server. While it is cut, connections break and new ones are not taken.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    open: Arc<watch::Sender<bool>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Leads to that port of this host.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub async fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let open = Arc::new(watch::Sender::new(true));
        let task = tokio::spawn(serve(listener, SocketAddr::from(([127, 0, 0, 1], port)), Arc::clone(&open)));
        Proxy { port: own, open, task }
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Cuts the link.
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    /// Mends it.
    pub fn mend(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, target: SocketAddr, open: Arc<watch::Sender<bool>>) {
    while let Ok((mut near, _)) = listener.accept().await {
        let mut state = open.subscribe();
        if !*state.borrow_and_update() {
            continue; // dropped: the other side sees a reset
        }
        tokio::spawn(async move {
            let Ok(mut far) = TcpStream::connect(target).await else { return };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                _ = state.wait_for(|open| !*open) => {}
            }
        });
    }
}
