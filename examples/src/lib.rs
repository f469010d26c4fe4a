//! The examples are the files beside this folder: `cargo run --example hello`.
