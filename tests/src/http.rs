//! A small HTTP client: one request a connection, with headers and paths exactly as they are given.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// The status.
    pub status: u16,
    /// Names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    pub fn json(&self) -> serde_json::Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {} {text}", self.status))
    }
}

/// Sends a request to 127.0.0.1 and returns the answer.
///
/// # Errors
///
/// There is no connection, or no whole answer.
pub fn http(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<HttpAnswer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let damaged = || std::io::Error::other(format!("no answer of HTTP: {}", String::from_utf8_lossy(&answer)));
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").ok_or_else(damaged)?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).ok_or_else(damaged)?;
    let header = |line: &str| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    Ok(HttpAnswer { status, headers: lines.filter_map(header).collect(), body: answer[end + 4..].to_vec() })
}
