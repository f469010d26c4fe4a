//! A link that can be cut: a port that leads to another one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A link to a server. While it is cut, connections break and new ones are not taken.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    open: Arc<watch::Sender<bool>>,
    taken: Arc<AtomicUsize>,
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
        let taken = Arc::new(AtomicUsize::new(0));
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        let task = tokio::spawn(serve(listener, target, Arc::clone(&open), Arc::clone(&taken)));
        Proxy { port: own, open, taken, task }
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How many connections it has led on.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
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

async fn serve(listener: TcpListener, target: SocketAddr, open: Arc<watch::Sender<bool>>, taken: Arc<AtomicUsize>) {
    while let Ok((mut near, _)) = listener.accept().await {
        let mut state = open.subscribe();
        if !*state.borrow_and_update() {
            continue; // dropped: the other side sees a reset
        }
        taken.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            let Ok(mut far) = TcpStream::connect(target).await else { return };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                _ = state.wait_for(|open| !*open) => {}
            }
        });
    }
}
