//! HTTP clients, shared by those who ask for the same settings, and answers that are read up to a bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Certificate, Client, Response, Url, redirect};

use crate::clock;
use crate::contract::{Props, error_text};
use crate::printable::printable;

/// A file of certificates (PEM) that are trusted beside the system's.
const CA_FILE: &str = "props.elasticjob.http.ca.file";
/// Of an answer so much is read; the rest is not waited for.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Time limit of a whole answer, in read timeouts.
const READ_TIMEOUTS_MAX: u32 = 10;
/// Maximum number of characters of a body in a message.
const BODY_CHARS_TOLD: usize = 300;
/// As the JDK has it.
const REDIRECTS_MAX: usize = 20;
/// Clients, each with its connections, that are kept.
const CLIENTS_MAX: usize = 64;

/// What requests of one client have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connecting {
    pub(crate) connect_timeout: Duration,
    pub(crate) read_timeout: Duration,
    ca_file: Option<String>,
}

impl Connecting {
    /// Reads the timeouts from those properties; by default they are Java's, 3 and 5 seconds.
    pub(crate) fn read(props: &mut Props<'_>, connect: &'static str, read: &'static str) -> Connecting {
        let ca_file = props.text(CA_FILE).map(str::to_owned);
        Connecting {
            connect_timeout: props.millis(connect, 1..=3_600_000, 3_000),
            read_timeout: props.millis(read, 1..=3_600_000, 5_000),
            ca_file,
        }
    }
}

/// Adds the fault of the file of certificates. Apart from [`Connecting::read`], which each run does.
pub(crate) fn check_certificates(props: &mut Props<'_>) {
    if let Some(Err(reason)) = props.text(CA_FILE).map(certificates) {
        props.fault(CA_FILE, format!("expected a file of certificates: {reason}"));
    }
}

fn certificates(file: &str) -> Result<Vec<Certificate>, String> {
    let text = std::fs::read(file).map_err(|e| e.to_string())?;
    let found = Certificate::from_pem_bundle(&text).map_err(|e| error_text(&e))?;
    if found.is_empty() { Err("the file contains no certificate".into()) } else { Ok(found) }
}

/// The clients of this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients(Arc<Mutex<HashMap<Connecting, Client>>>);

impl Clients {
    /// The client with these settings, with its connections of before.
    pub(crate) fn get(&self, connecting: &Connecting) -> Result<Client, String> {
        if let Some(client) = self.0.lock().get(connecting) {
            return Ok(client.clone());
        }
        // The headers and the body of a request are for the host that the address names.
        let same_origin = redirect::Policy::custom(|attempt| {
            let before = attempt.previous().last().map(Url::origin);
            if attempt.previous().len() > REDIRECTS_MAX || before.is_some_and(|before| before != attempt.url().origin())
            {
                attempt.stop()
            } else {
                attempt.follow()
            }
        });
        let mut builder = Client::builder()
            .connect_timeout(connecting.connect_timeout)
            .read_timeout(connecting.read_timeout)
            .redirect(same_origin)
            .referer(false)
            .user_agent(concat!("elasticjob/", env!("CARGO_PKG_VERSION")));
        if let Some(file) = &connecting.ca_file {
            builder = builder.tls_certs_merge(certificates(file)?);
        }
        let client = builder.build().map_err(|e| format!("cannot create the HTTP client: {}", error_text(&e)))?;
        let mut clients = self.0.lock();
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        clients.insert(connecting.clone(), client.clone());
        Ok(client)
    }
}

/// Reads the body up to its bound. A longer body is logged for that job and item, and its connection closed.
pub(crate) async fn body(
    mut response: Response,
    connecting: &Connecting,
    job: &str,
    item: Option<u32>,
) -> Result<String, String> {
    let limit = connecting.read_timeout * READ_TIMEOUTS_MAX;
    let reading = async {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| error_text(&e))? {
            let room = BODY_BYTES_MAX - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                let from = response.url().host_str().unwrap_or_default();
                tracing::warn!(
                    job,
                    item,
                    host = from,
                    "the answer is longer than {BODY_BYTES_MAX} bytes; ignoring the rest"
                );
                break;
            }
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    };
    clock::within(limit, reading).await.unwrap_or_else(|| Err(format!("response body incomplete after {limit:?}")))
}

/// The start of a body, for people, in one line.
pub(crate) fn start_of(body: &str) -> String {
    let body = printable(body.trim());
    match body.char_indices().nth(BODY_CHARS_TOLD) {
        Some((end, _)) => format!("{}…", &body[..end]),
        None if body.is_empty() => "no body".to_owned(),
        None => body,
    }
}

/// An address for messages: without user, password and query, which may be secret.
#[cfg(feature = "http")]
pub(crate) fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    // Fails for addresses without a host, which have no user either.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_query(None);
    shown.set_fragment(None);
    printable(shown.as_str())
}

/// The address of that property.
pub(crate) fn address(props: &mut Props<'_>, key: &'static str) -> Option<Url> {
    let text = props.required(key, "the address to call, such as https://example.com/run");
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if url.is_none() && !text.is_empty() {
        let expected = match Url::parse(text) {
            Err(reason) => format!("expected an address such as https://example.com/run: {reason}"),
            Ok(_) => "expected an address that begins with http:// or https://".to_owned(),
        };
        props.fault(key, expected);
    }
    url
}
