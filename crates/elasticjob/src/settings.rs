//! Typed settings of a job that the registry stores as text.

use std::time::Duration;

/// How often a failed item is tried again, and after what time.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use elasticjob::{Retry, ScheduleJob};
///
/// let job = ScheduleJob::new("report", 1)
///     .cron("0 0 3 * * ?")
///     .retry(Retry { delay: Duration::from_secs(5), ..Retry::times(3) })
///     .timeout(Duration::from_secs(600));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The number of retries, 0 to 1,000.
    pub count: u32,
    /// The delay before the first retry, up to 7 days; one second by default. It doubles with each further retry. A random half
    /// of it is left out, so that instances that fail together do not retry together.
    pub delay: Duration,
    /// The longest delay, up to 7 days; one minute by default.
    pub delay_max: Duration,
}

impl Retry {
    /// Returns a number of retries with the default delays.
    pub fn times(count: u32) -> Retry {
        Retry { count, delay: Duration::from_secs(1), delay_max: Duration::from_secs(60) }
    }
}

/// How many items of a run execute at one time on an instance (Java: `JobExecutorThreadPoolSizeProvider`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadPool {
    /// Twice as many as the host has processors.
    #[default]
    Cpu,
    /// One.
    SingleThread,
}

impl ThreadPool {
    /// Returns Java's name.
    pub fn name(self) -> &'static str {
        match self {
            ThreadPool::Cpu => "CPU",
            ThreadPool::SingleThread => "SINGLE_THREAD",
        }
    }
}

/// The request of an HTTP job (manual: "HTTP Job").
///
/// # Examples
///
/// ```
/// use elasticjob::{HttpRequest, ScheduleJob};
///
/// let job = ScheduleJob::new("ping", 1).cron("0 * * * * ?").http(HttpRequest::get("https://example.com/ping"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct HttpRequest {
    method: &'static str,
    url: String,
    body: Option<String>,
    content_type: Option<String>,
    connect_timeout: Option<Duration>,
    read_timeout: Option<Duration>,
}

impl HttpRequest {
    fn new(method: &'static str, url: impl Into<String>) -> HttpRequest {
        HttpRequest {
            method,
            url: url.into(),
            body: None,
            content_type: None,
            connect_timeout: None,
            read_timeout: None,
        }
    }

    /// A GET request.
    pub fn get(url: impl Into<String>) -> HttpRequest {
        HttpRequest::new("GET", url)
    }

    /// A POST request with a body.
    pub fn post(url: impl Into<String>, body: impl Into<String>) -> HttpRequest {
        HttpRequest { body: Some(body.into()), ..HttpRequest::new("POST", url) }
    }

    /// A PUT request with a body.
    pub fn put(url: impl Into<String>, body: impl Into<String>) -> HttpRequest {
        HttpRequest { body: Some(body.into()), ..HttpRequest::new("PUT", url) }
    }

    /// A DELETE request.
    pub fn delete(url: impl Into<String>) -> HttpRequest {
        HttpRequest::new("DELETE", url)
    }

    /// Sets the content type of the body.
    pub fn content_type(mut self, content_type: impl Into<String>) -> HttpRequest {
        self.content_type = Some(content_type.into());
        self
    }

    /// Sets the time limit for the connection, 1 ms to one hour. 3 seconds by default.
    pub fn connect_timeout(mut self, limit: Duration) -> HttpRequest {
        self.connect_timeout = Some(limit);
        self
    }

    /// Sets the time limit for each piece of the answer, 1 ms to one hour. 5 seconds by default.
    pub fn read_timeout(mut self, limit: Duration) -> HttpRequest {
        self.read_timeout = Some(limit);
        self
    }

    pub(crate) fn properties(self) -> Vec<(&'static str, String)> {
        let millis = |limit: Duration| limit.as_millis().to_string();
        let optional = [
            ("http.data", self.body),
            ("http.content.type", self.content_type),
            ("http.connect.timeout.milliseconds", self.connect_timeout.map(millis)),
            ("http.read.timeout.milliseconds", self.read_timeout.map(millis)),
        ];
        let set = optional.into_iter().filter_map(|(key, value)| Some((key, value?)));
        [("http.method", self.method.to_owned()), ("http.uri", self.url)].into_iter().chain(set).collect()
    }
}
