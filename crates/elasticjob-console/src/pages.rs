//! The pages for browsers: built by `cargo xtask ui`, and a part of the binary.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use rust_embed::{Embed, EmbeddedFile};

/// The built pages. Without them the binary builds too, and serves a page that says how to get them.
#[derive(Embed)]
#[folder = "ui/dist"]
#[allow_missing = true]
struct Built;

/// Files whose names change with their contents.
const HASHED: &str = "assets/";

/// Serves a file; for a path of the interface its first page, which finds the place by the path.
pub(crate) async fn serve(request: Request) -> Response {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let path = request.uri().path().trim_start_matches('/');
    match Built::get(path).filter(|_| !path.is_empty()) {
        Some(file) => answer(path, &file),
        // A missing file is not the first page: the browser would take it for a script.
        None if path.starts_with(HASHED) => StatusCode::NOT_FOUND.into_response(),
        None => match Built::get("index.html") {
            Some(page) => answer("index.html", &page),
            None => Html(include_str!("page.html")).into_response(),
        },
    }
}

fn answer(path: &str, file: &EmbeddedFile) -> Response {
    let kind = match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let cache = if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut response = file.data.clone().into_owned().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}
