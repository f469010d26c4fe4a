//! `elasticjob`: the one binary. All of it is in the library beside, so that tests reach it.

/// What one thread makes another one gives free, all the time: see docs/performance.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    elasticjob_cli::main()
}
