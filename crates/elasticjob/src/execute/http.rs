//! Jobs that are an HTTP request (Java: `HttpJobExecutor`; manual: "HTTP Job").

use elasticjob_core::config::{ConfigError, JobConfig};
use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Method, Url};

use crate::contract::{Context, JobResult, JobType, Props, error_text};
use crate::web::{self, Clients, Connecting};

const URI: &str = "props.http.uri";
const METHOD: &str = "props.http.method";
const DATA: &str = "props.http.data";
const CONTENT: &str = "props.http.content.type";
const CONNECT_TIMEOUT: &str = "props.http.connect.timeout.milliseconds";
const READ_TIMEOUT: &str = "props.http.read.timeout.milliseconds";

/// Java's methods: `HttpURLConnection` knows no others, and none in lower case.
const METHODS: [&str; 7] = ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"];

/// The job type `HTTP`: one request for each item, with the headers `shardingContext` (the context as JSON) and
/// `elasticjob-fencing-token`. A status of 400 and above is a failure.
///
/// | property | default | |
/// | --- | --- | --- |
/// | `http.uri` | required | `http` or `https` |
/// | `http.method` | required | GET, POST, HEAD, OPTIONS, PUT, DELETE, TRACE |
/// | `http.data` | none | the body of POST, PUT and DELETE |
/// | `http.content.type` | none | of the body; `application/x-www-form-urlencoded` for POST and DELETE, as the JDK has it |
/// | `http.connect.timeout.milliseconds` | 3000 | |
/// | `http.read.timeout.milliseconds` | 5000 | for each piece of the answer; the whole of it gets ten times as long |
/// | `elasticjob.http.ca.file` | none | certificates (PEM) that are trusted beside the system's |
#[derive(Clone, Debug, Default)]
pub(crate) struct Http(Clients);

impl Http {
    pub(crate) fn new(clients: &Clients) -> Http {
        Http(clients.clone())
    }
}

/// The properties of an HTTP job, checked.
struct Settings {
    url: Option<Url>,
    method: Method,
    data: Option<String>,
    content_type: Option<HeaderValue>,
    connecting: Connecting,
}

impl Settings {
    fn read(props: &mut Props<'_>) -> Settings {
        let method = props.required(METHOD, &format!("one of {}", METHODS.join(", ")));
        if !method.is_empty() && !METHODS.contains(&method) {
            props.fault(METHOD, format!("expected one of {}, in upper case", METHODS.join(", ")));
        }
        let content_type = props.text(CONTENT).map(HeaderValue::from_str);
        if let Some(Err(_)) = content_type {
            props.fault(CONTENT, "expected a header's value, such as application/json".into());
        }
        let takes_body = matches!(method, "POST" | "PUT" | "DELETE");
        Settings {
            url: web::address(props, URI),
            method: method.parse().unwrap_or_default(),
            data: props.text(DATA).filter(|_| takes_body).map(str::to_owned),
            content_type: content_type.and_then(Result::ok),
            connecting: Connecting::read(props, CONNECT_TIMEOUT, READ_TIMEOUT),
        }
    }
}

impl JobType for Http {
    fn name(&self) -> &str {
        "HTTP"
    }

    fn check(&self, config: &JobConfig) -> Vec<ConfigError> {
        let mut props = Props::of(config);
        Settings::read(&mut props);
        web::check_certificates(&mut props);
        props.into_faults()
    }

    async fn execute(&self, context: Context) -> JobResult {
        let mut props = Props::of(context.config());
        let settings = Settings::read(&mut props);
        props.ok()?;
        self.call(settings, &context).await
    }
}

impl Http {
    async fn call(&self, settings: Settings, context: &Context) -> JobResult {
        let client = self.0.get(&settings.connecting)?;
        // DEL is the one character that the JSON has as it is and that no header may have.
        let json = context.json().replace('\u{7f}', "\\u007f");
        let url = settings.url.ok_or("the property `http.uri` is missing or invalid")?;
        let shown = web::shown(&url);
        let mut request = client
            .request(settings.method.clone(), url)
            .header("shardingContext", HeaderValue::from_bytes(json.as_bytes())?)
            .header("elasticjob-fencing-token", context.fencing_token());
        // The JDK's default content type of a body; it sets none for PUT.
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let default = (settings.data.is_some() && settings.method != Method::PUT).then_some(form);
        if let Some(content_type) = settings.content_type.or(default) {
            request = request.header(CONTENT_TYPE, content_type);
        }
        if let Some(data) = settings.data {
            request = request.body(data);
        }
        let response = request.send().await.map_err(|e| {
            let text = error_text(&e.without_url());
            let advice = match text.contains("InvalidContentType") {
                true => "; the server does not speak TLS: is this an http:// address?",
                false => "",
            };
            format!("{} {shown}: {text}{advice}", settings.method)
        })?;
        let (status, landed) = (response.status(), response.url().clone());
        context.log(format!("{} answered with status {status}", settings.method));
        let location = response.headers().get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
        let body = web::body(response, &settings.connecting, context.job_name(), Some(context.item())).await;
        if status.as_u16() >= 400 {
            let start = body
                .map_or_else(|e| format!("the body of the answer could not be read: {e}"), |body| web::start_of(&body));
            return Err(format!("status {status}: {start}").into());
        }
        if let Some(to) = location.filter(|_| status.is_redirection()) {
            // Relative to where the last redirect led.
            let to = landed.join(&to).map_or_else(|_| "an invalid address".to_owned(), |to| web::shown(&to));
            let text = "is not followed: a redirect is followed only to the same scheme, host and port, and at most 20 times in a row";
            return Err(format!("status {status}: the redirect to {to} {text}").into());
        }
        let body = body?;
        let (job, item, status) = (context.job_name(), context.item(), status.as_u16());
        tracing::debug!(job, item, status, "received an HTTP answer: {}", web::start_of(&body));
        Ok(())
    }
}
