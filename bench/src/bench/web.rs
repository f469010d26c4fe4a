//! What HTTP jobs call: it notes when they do.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::clock;

pub(crate) struct Web {
    port: u16,
    called: Arc<Mutex<Vec<u64>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Web {
    pub(crate) fn start() -> anyhow::Result<Web> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let called = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&called);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let noted = Arc::clone(&noted);
                let service = service_fn(move |_| {
                    noted.lock().push(clock::micros());
                    async { Ok::<_, Infallible>(Response::new("done".to_owned())) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Ok(Web { port, called, _runtime: runtime })
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// When it was called, in microseconds since the Unix epoch; empties the list.
    pub(crate) fn calls(&self) -> Vec<u64> {
        std::mem::take(&mut *self.called.lock())
    }
}
